package rl

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"onering/data"
	"onering/internal/settings"
)

// A TrainFile says where problems are read from (a file, a glob, a folder, or a name on a hub)
// and how. Its keys override the keys of the same names for all files.
type TrainFile struct {
	Path    string  `toml:"path"`
	Name    string  `toml:"name"`
	Weight  float64 `toml:"weight"`
	Filter  string  `toml:"filter"`
	Prompts int     `toml:"prompts"`
	data.Columns
}

// TrainFiles say where the problems of a run are read from. A run file states a text, or a list of texts and tables.
type TrainFiles []TrainFile

// Is says whether f is only the given path.
func (f TrainFiles) Is(path string) bool { return len(f) == 1 && f[0] == TrainFile{Path: path} }

// String names the paths.
func (f TrainFiles) String() string {
	paths := make([]string, len(f))
	for i, file := range f {
		paths[i] = file.Path
	}
	return strings.Join(paths, ", ")
}

// Options returns the options of the file; o has those for all files.
func (f TrainFile) Options(o data.Options) data.Options {
	o.Prompt, o.Answer = cmp.Or(f.Prompt, o.Prompt), cmp.Or(f.Answer, o.Answer)
	o.ID, o.Split, o.Expansion = cmp.Or(f.ID, o.ID), cmp.Or(f.Split, o.Split), cmp.Or(f.Expansion, o.Expansion)
	o.Filter, o.Limit = cmp.Or(f.Filter, o.Filter), cmp.Or(f.Prompts, o.Limit)
	return o
}

// fileTables read and write the tables of a list of files.
var fileTables = settings.Tables[TrainFile]{Key: "data.train", Kind: "a file"}

// Wanted implements settings.Special.
func (TrainFiles) Wanted() string {
	return `a file in quotes, or a list of files and tables such as ["a.jsonl", {path = "b.parquet", weight = 0.3}]`
}

// UnmarshalTOML takes a text, a table, or a list of both. A stated weight of 0 is an error, since 0 stands for none.
func (f *TrainFiles) UnmarshalTOML(value any) error {
	files, stated, err := fileTables.Read(value, f.Wanted())
	for i, file := range files {
		if file.Weight == 0 && slices.Contains(stated[i], "weight") {
			return fmt.Errorf("%q: its weight 0 must be a finite number above 0: leave the file out, or its weight", file.Path)
		}
	}
	if err == nil {
		*f = files
	}
	return err
}

// MarshalTOML writes what UnmarshalTOML reads: a text if the path is all there is.
func (f TrainFiles) MarshalTOML() ([]byte, error) {
	texts, err := fileTables.Write(f, func(_ int, x settings.Field) bool { return !x.Value.IsZero() })
	if len(f) == 1 && f.Is(f[0].Path) {
		return []byte(texts[0]), err
	}
	return []byte("[" + strings.Join(texts, ", ") + "]"), err
}

// Validate reports impossible values as joined *settings.Errors of the key, which is that of the whole list.
func (f TrainFiles) Validate(key string) error {
	var errs settings.Errors
	errs.Want(key, "", len(f) > 0, "name the file of training problems")
	sum, weighted := 0.0, 0 // of the weights, and how many files have one
	named := map[string]bool{}
	for _, file := range f {
		errs.Want(key, file.Path, strings.TrimSpace(file.Path) != "", "name the file of training problems")
		errs.Want(key, file.Path, len(f) == 1 || !strings.HasPrefix(file.Path, "builtin:"), "an embedded task has no end and stands alone")
		errs.Want(key, file.Path, file.Weight >= 0 && !math.IsInf(file.Weight, 1), fmt.Sprintf("its weight %v must be a finite number above 0", file.Weight))
		errs.Want(key, file.Path, file.Prompts >= 0, fmt.Sprintf("its prompts = %d must be at least 0; 0 keeps all", file.Prompts))
		errs.Want(key, file.Path, file.Name == "" || !named[file.Name], fmt.Sprintf("another file has its name %q", file.Name))
		errs.Want(key, file.Path, !strings.ContainsAny(file.Name, "/\n"),
			fmt.Sprintf("its name %q must not hold a slash: names of metrics are made of it", file.Name))
		named[file.Name] = true
		if file.Filter != "" {
			var bad *data.FilterError
			if _, err := data.ParseFilter(file.Filter); errors.As(err, &bad) {
				errs.Want(key, file.Path, false, fmt.Sprintf("its filter %q: %s", file.Filter, bad.Problem()))
			}
		}
		if file.Weight > 0 {
			sum, weighted = sum+file.Weight, weighted+1
		}
	}
	// If each file has a weight, their sum does not matter.
	errs.Want(key, f.String(), weighted == len(f) || sum < 1,
		fmt.Sprintf("the weights add up to %v, and the files without a weight get what is left of 1: lower them, or give each file a weight", sum))
	return errors.Join(errs...)
}

// Named returns the files with a name for each: the given one, or one made of the path, with a
// number behind it where another file has that name.
func (f TrainFiles) Named() TrainFiles {
	f = slices.Clone(f)
	taken := map[string]bool{}
	for _, file := range f {
		taken[file.Name] = true
	}
	for i := range f {
		if f[i].Name != "" {
			continue
		}
		name := fileLabel(f[i].Path)
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s#%d", fileLabel(f[i].Path), n)
		}
		f[i].Name, taken[name] = name, true
	}
	return f
}

// fileLabel is the last part of a path without wildcards, revision and extension.
func fileLabel(name string) string {
	name = strings.TrimPrefix(strings.ReplaceAll(name, `\`, "/"), "hf:")
	for strings.ContainsAny(path.Base(name), "*?[") {
		name = path.Dir(name)
	}
	base, _, _ := strings.Cut(path.Base(name), "@")
	base, _ = data.Split(base)
	if base == "." || base == "/" || base == "" {
		return "data"
	}
	return base
}

// markSource notes in problems the file that they come from, and prefixes their names with its
// name, since two files may use the same names.
func markSource(name string, problems []data.Problem) {
	for i := range problems {
		p := &problems[i]
		p.Source = name
		if !strings.HasPrefix(p.ID, name+":") {
			p.ID = name + "/" + p.ID
		}
	}
}
