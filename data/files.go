package data

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"onering/internal/files"
	"onering/internal/settings"
	"onering/internal/strict"
)

// A file is one data file of a dataset.
type file struct {
	path string
	name string // name for ids: the path relative to the dataset's folder, without extension
	root string // the folder that links may not leave; "" for a file that the user named
}

// metadata are the JSON files beside the data of a Hugging Face folder.
var metadata = []string{"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}

// splitWord matches the split in a file's name, as the Hugging Face hub
// (train-00000-of-00002.parquet) and its cache (gsm8k-test.arrow) write them.
var splitWord = regexp.MustCompile(`(?i)(?:^|[-_.])(train|test|validation|valid|val|dev|eval)(?:[-_.]|$)`)

// findFiles lists the data files of a path: a file, a glob, or a folder.
func findFiles(path, splitName string) ([]file, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return listFolder(path, splitName)
	case err == nil:
		paths, err := keepAskedSplit(filepath.Dir(path), splitName, []string{path}) // an error if its name says another split
		return nameFiles(paths, filepath.Dir(path), ""), err                        // the user named the file, so it may be a link to anywhere
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("data: %w", err)
	}
	if !strings.ContainsAny(path, "*?[") {
		return nil, fmt.Errorf("data: %q: no such file or folder", path)
	}
	within := patternFolder(path)
	pattern, err := filepath.Rel(within, path)
	if err == nil {
		_, err = filepath.Match(pattern, "") // is the pattern well formed?
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
	if paths, err = keepAskedSplit(commonFolder(paths), splitName, paths); err != nil {
		return nil, err
	}
	return nameFiles(paths, commonFolder(paths), within), nil
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

// listFolder lists the data files of a folder: those that the description of a
// Hugging Face `datasets` folder names, else all files with the extension of a
// data file in the folder or in its subfolder "data".
func listFolder(dir, splitName string) ([]file, error) {
	var dict struct{ Splits []string }
	found, err := decodeIfThere(dir, "dataset_dict.json", &dict)
	if err != nil {
		return nil, err
	}
	if found {
		name, err := chooseSplit(dir, splitName, dict.Splits)
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

// decodeIfThere decodes a JSON file of a folder into v, and reports whether there is
// one.
func decodeIfThere(dir, name string, v any) (bool, error) {
	path := filepath.Join(dir, name)
	text, err := files.ReadIn(path, maxMetadata)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("data: %w", err)
	}
	if err := strict.JSON(text, v); err != nil {
		return false, fmt.Errorf("data: %s: %w", path, err)
	}
	return true, nil
}

// dataFolder lists the data files of a folder: those that its state.json names, else those that its card
// names, else all in it or in its subfolder "data". Links may not leave the folder root.
func dataFolder(dir, splitName, root string) ([]file, error) {
	var state struct {
		Files []struct{ Filename string } `json:"_data_files"`
	}
	if _, err := decodeIfThere(dir, "state.json", &state); err != nil {
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
		return nameFiles(paths, dir, root), nil
	}
	if paths, err := filesOfCard(dir, splitName); err != nil || len(paths) > 0 {
		return nameFiles(paths, dir, root), err
	}
	var folders []string
	for _, sub := range []string{dir, filepath.Join(dir, "data")} {
		paths, others, err := dataFiles(sub)
		if err != nil && sub == dir {
			return nil, fmt.Errorf("data: %w", err)
		}
		if len(paths) > 0 {
			paths, err := filesOfSplit(sub, splitName, paths)
			return nameFiles(paths, dir, root), err
		}
		folders = append(folders, others...)
	}
	if len(folders) > 0 {
		return nil, fmt.Errorf("data: %q: no data file in the folder itself: name one of its folders %q", dir, folders)
	}
	return nil, fmt.Errorf("data: %q: no data file (%s) in the folder", dir, strings.Join(Extensions(), ", "))
}

// filesOfCard lists the files that a repository's card, the head of README.md, names for a split;
// none if it names none that are there.
func filesOfCard(dir, splitName string) ([]string, error) {
	path := filepath.Join(dir, "README.md")
	text, _ := files.ReadIn(path, maxMetadata)
	head, isCard := strings.CutPrefix(strings.ReplaceAll(string(text), "\r\n", "\n"), "---\n")
	if !isCard {
		return nil, nil
	}
	head, _, _ = strings.Cut(head, "\n---")
	var card struct {
		Configs []struct {
			Name    string `yaml:"config_name"`
			Default bool   `yaml:"default"`
			Files   any    `yaml:"data_files"`
		} `yaml:"configs"`
	}
	if err := yaml.Unmarshal([]byte(head), &card); err != nil {
		return nil, fmt.Errorf("data: %s: its head is not a data card in YAML (%v): mend it, or give the path or glob of the data files", path, err)
	}
	configs := map[string]map[string][]string{} // files by configuration and split
	for _, c := range card.Configs {
		bySplit := map[string][]string{}
		const unnamed = "train" // the split of files for which the card names none
		listFiles(dir, unnamed, c.Files, bySplit)
		if len(bySplit) > 0 {
			configs[c.Name] = bySplit
		}
		if c.Default && len(bySplit) > 0 { // the others do not count
			configs = map[string]map[string][]string{c.Name: bySplit}
			break
		}
	}
	names := slices.Sorted(maps.Keys(configs))
	if len(names) > 1 {
		return nil, fmt.Errorf("data: %q has several configurations, %q: give the path or glob of the files of one", dir, names)
	}
	if len(names) == 0 {
		return nil, nil
	}
	bySplit := configs[names[0]]
	name, err := chooseSplit(dir, splitName, slices.Sorted(maps.Keys(bySplit)))
	return bySplit[name], err
}

// listFiles adds the files of a folder that data_files of a card lists to bySplit: listed is a pattern,
// or a list of patterns or of splits with their patterns. split is that of patterns without one.
func listFiles(dir, split string, listed any, bySplit map[string][]string) {
	switch v := listed.(type) {
	case string:
		folders := []string{""}
		if strings.Contains(v, "**/") { // any number of folders, of which up to two are looked into
			folders = []string{"", "*/", "*/*/"}
		}
		for _, pattern := range folders {
			for _, path := range files.Glob(dir, strings.Replace(v, "**/", pattern, 1)) {
				if _, ext := Split(path); ext != "" { // it is a data file
					bySplit[split] = append(bySplit[split], path)
				}
			}
		}
	case []any:
		for _, x := range v {
			listFiles(dir, split, x, bySplit)
		}
	case map[string]any:
		listFiles(dir, fmt.Sprint(v["split"]), v["path"], bySplit)
	}
}

// dataFiles lists the data files directly in dir, or if it has none, those in its folders that
// are named as splits. others are the names of other folders with data files.
func dataFiles(dir string) (paths, others []string, err error) {
	paths, folders, err := entries(dir)
	if err != nil || len(paths) > 0 {
		return paths, nil, err
	}
	for _, name := range folders {
		inner, _, err := entries(filepath.Join(dir, name))
		switch {
		case err != nil:
			return nil, nil, err
		case splitWord.MatchString(name):
			paths = append(paths, inner...)
		case len(inner) > 0:
			others = append(others, name)
		}
	}
	return paths, others, nil
}

// entries lists the data files and the names of the folders in dir, sorted.
func entries(dir string) (paths, folders []string, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		n := e.Name()
		_, ext := Split(n)
		switch {
		case n[0] == '.' || n[0] == '_' || slices.Contains(metadata, n):
		case e.IsDir():
			folders = append(folders, n)
		case ext != "":
			paths = append(paths, filepath.Join(dir, n))
		}
	}
	return paths, folders, err
}

// keepAskedSplit keeps the files of a split that was asked for, of files that a path or a glob
// names. It keeps all if none is named as a split.
func keepAskedSplit(dir, splitName string, paths []string) ([]string, error) {
	named := func(path string) bool { stem, _ := Split(filepath.Base(path)); return splitWord.MatchString(stem) }
	if splitName == "" || !slices.ContainsFunc(paths, named) {
		return paths, nil
	}
	return filesOfSplit(dir, splitName, paths)
}

// filesOfSplit keeps the files of one split. It is an error if the folder has several
// splits and none is chosen: test problems must not get into training. Files without a split
// in their names are those of train beside others that are of a split, but none of train.
func filesOfSplit(dir, splitName string, paths []string) ([]string, error) {
	bySplit := map[string][]string{}
	for _, p := range paths {
		where, _ := filepath.Rel(dir, p)
		stem, _ := Split(filepath.Base(p))
		if folder := filepath.Dir(where); folder != "." {
			stem = folder // a file in a folder belongs to the split that the folder names
		}
		name := ""
		if m := splitWord.FindStringSubmatch(stem); m != nil {
			name = m[1]
		}
		bySplit[name] = append(bySplit[name], p)
	}
	if rest := bySplit[""]; bySplit["train"] == nil && len(rest) > 0 && len(bySplit) > 1 {
		bySplit["train"] = rest
	}
	delete(bySplit, "")
	if len(bySplit) <= 1 && splitName == "" {
		return paths, nil
	}
	name, err := chooseSplit(dir, splitName, slices.Sorted(maps.Keys(bySplit)))
	return bySplit[name], err
}

func chooseSplit(dir, wanted string, have []string) (string, error) {
	switch {
	case slices.Contains(have, wanted):
		return wanted, nil
	case wanted != "":
		return "", fmt.Errorf("data: %q has no split %q (have %q)", dir, wanted, have)
	case len(have) == 1:
		return have[0], nil
	}
	slices.Sort(have)
	return "", settings.About(fmt.Errorf("data: %q has several splits, %q: name one with data.split, or give the path or glob of its files", dir, have),
		"data.split", "eval.split")
}

// nameFiles gives each path its name for ids, relative to dir.
func nameFiles(paths []string, dir, root string) []file {
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
			if err == nil && filepath.IsLocal(rel) || dir == filepath.Dir(dir) { // it holds p, or is the root
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	return dir
}
