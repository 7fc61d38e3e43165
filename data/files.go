package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"onering/internal/files"
)

// A file is one data file of a dataset.
type file struct {
	path string
	name string // name for ids: the path relative to the dataset's folder, without extension
	root string // the folder that links may not leave; "" for a file that the user named
}

// metadata are the JSON files beside the data of a Hugging Face folder.
var metadata = []string{"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}

// split matches the split in a file's name, as the Hugging Face hub
// (train-00000-of-00002.parquet) and its cache (gsm8k-test.arrow) write them.
var split = regexp.MustCompile(`(?i)(?:^|[-_.])(train|test|validation|valid|val|dev|eval)(?:[-_.]|$)`)

// findFiles lists the data files of a path: a file, a glob, or a folder.
func findFiles(path, splitName string) ([]file, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return folder(path, splitName)
	case err == nil:
		return named([]string{path}, filepath.Dir(path), ""), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("data: %w", err)
	}
	if !strings.ContainsAny(path, "*?[") {
		return nil, fmt.Errorf("data: %q: no such file or folder", path)
	}
	within := patternFolder(path)
	pattern, err := filepath.Rel(within, path)
	if err == nil {
		_, err = filepath.Match(pattern, "")
	}
	if err != nil {
		return nil, fmt.Errorf("data: %q: %w", path, err)
	}
	matches := files.Glob(within, filepath.ToSlash(pattern))
	var paths []string
	for _, m := range matches {
		if filepath.Base(m)[0] == '.' && filepath.Base(path)[0] != '.' {
			continue // skip hidden files, as a shell does
		}
		if info, err := os.Stat(m); err == nil && info.Mode().IsRegular() {
			paths = append(paths, m)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("data: %q: no file matches", path)
	}
	return named(paths, commonFolder(paths), within), nil
}

// patternFolder returns the deepest folder of a glob that exists, even if its name has
// wildcards in it, or the deepest one without wildcards.
func patternFolder(glob string) string {
	dir := filepath.Dir(glob)
	for strings.ContainsAny(dir, "*?[") {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// folder lists the data files of a folder: those that the description of a
// Hugging Face `datasets` folder names, else all files with the extension of a
// data file in the folder or in its subfolder "data".
func folder(dir, splitName string) ([]file, error) {
	var dict struct{ Splits []string }
	found, err := describes(dir, "dataset_dict.json", &dict)
	if err != nil {
		return nil, err
	}
	if found {
		name, err := oneSplit(dir, splitName, dict.Splits)
		if err != nil {
			return nil, err
		}
		if !filepath.IsLocal(name) || name != filepath.Base(name) {
			return nil, fmt.Errorf("data: %s: the split %q is not the name of a folder in it", filepath.Join(dir, "dataset_dict.json"), name)
		}
		parts, err := dataFolder(filepath.Join(dir, name), "", dir)
		for i := range parts {
			parts[i].name = name + "/" + parts[i].name
		}
		return parts, err
	}
	return dataFolder(dir, splitName, dir)
}

// describes decodes a JSON file of a folder into v, and reports whether there is
// one.
func describes(dir, name string, v any) (bool, error) {
	path := filepath.Join(dir, name)
	text, err := files.ReadIn(path, maxMetadata)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("data: %w", err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("data: %s: %w", path, err)
	}
	return true, nil
}

// dataFolder lists the data files of a folder without splits of its own. Links may
// not leave the folder root.
func dataFolder(dir, splitName, root string) ([]file, error) {
	var state struct {
		Files []struct{ Filename string } `json:"_data_files"`
	}
	if _, err := describes(dir, "state.json", &state); err != nil {
		return nil, err
	}
	if len(state.Files) > 0 {
		var paths []string
		for _, f := range state.Files {
			if !filepath.IsLocal(f.Filename) {
				return nil, fmt.Errorf("data: %s: the data file %q is outside the folder", filepath.Join(dir, "state.json"), f.Filename)
			}
			paths = append(paths, filepath.Join(dir, f.Filename))
		}
		return named(paths, dir, root), nil
	}
	for _, sub := range []string{dir, filepath.Join(dir, "data")} {
		paths, err := dataFiles(sub)
		if err != nil && sub == dir {
			return nil, fmt.Errorf("data: %w", err)
		}
		if len(paths) > 0 {
			paths, err := ofSplit(sub, splitName, paths)
			return named(paths, dir, root), err
		}
	}
	return nil, fmt.Errorf("data: %q: no data file (%s) in the folder", dir, strings.Join(Extensions(), ", "))
}

// dataFiles lists the data files directly in dir (not in its folders), sorted.
func dataFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		n := e.Name()
		if _, ext := Split(n); !e.IsDir() && ext != "" && !slices.Contains(metadata, n) && n[0] != '.' && n[0] != '_' {
			paths = append(paths, filepath.Join(dir, n))
		}
	}
	return paths, nil
}

// ofSplit keeps the files of one split. It is an error if the folder has several
// splits and none is chosen: test problems must not get into training.
func ofSplit(dir, splitName string, paths []string) ([]string, error) {
	bySplit := map[string][]string{}
	var names []string
	for _, p := range paths {
		stem, _ := Split(filepath.Base(p))
		if m := split.FindStringSubmatch(stem); m != nil {
			if bySplit[m[1]] == nil {
				names = append(names, m[1])
			}
			bySplit[m[1]] = append(bySplit[m[1]], p)
		}
	}
	if len(names) <= 1 && splitName == "" {
		return paths, nil
	}
	name, err := oneSplit(dir, splitName, names)
	return bySplit[name], err
}

func oneSplit(dir, wanted string, have []string) (string, error) {
	switch {
	case slices.Contains(have, wanted):
		return wanted, nil
	case wanted != "":
		return "", fmt.Errorf("data: %q has no split %q (have %q)", dir, wanted, have)
	case len(have) == 1:
		return have[0], nil
	}
	slices.Sort(have)
	return "", fmt.Errorf("data: %q has several splits, %q: name one with data.split in a run file, or --split, or give the path or glob of its files", dir, have)
}

// named gives each path its name for ids, relative to dir.
func named(paths []string, dir, root string) []file {
	list := make([]file, len(paths))
	for i, p := range paths {
		name, err := filepath.Rel(dir, p)
		if err != nil {
			name = filepath.Base(p)
		}
		stem, _ := Split(filepath.ToSlash(name))
		list[i] = file{p, stem, root}
	}
	return list
}

// commonFolder returns the deepest folder that holds all the paths.
func commonFolder(paths []string) string {
	dir := filepath.Dir(paths[0])
	for _, p := range paths {
		for {
			rel, err := filepath.Rel(dir, p)
			if err == nil && filepath.IsLocal(rel) || dir == filepath.Dir(dir) {
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	return dir
}
