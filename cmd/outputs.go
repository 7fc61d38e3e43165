package cmd

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"onering/internal/cli"
	"onering/internal/files"
	"onering/train"
)

// checkOutput refuses to write the file at path, the value of a flag, if it is there already and belongs to a run, or
// the command reads it: its arguments and flags name it, also by a run file, or a folder that it is in. Other names
// for a file, and links, do not hide it. Pages (.html) may be written again.
func checkOutput(c *cobra.Command, flag, path string) error {
	out, err := os.Stat(path)
	if err != nil || !out.Mode().IsRegular() {
		return nil // nothing is lost
	}
	source := "" // the file that would be lost: path by another name
	if real, err := filepath.EvalSymlinks(path); err == nil {
		real, _ = filepath.Abs(real)
		for dir := filepath.Dir(real); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			rel, _ := filepath.Rel(dir, real) // dir may be the folder of a run
			first, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
			if _, err := os.Lstat(filepath.Join(dir, "run.toml")); err == nil && rel != "report.html" && train.Folder(dir).Holds(first) {
				source = cli.Nearest(real)
			}
		}
	}
	for _, name := range readBy(c, flag) {
		root, err := filepath.EvalSymlinks(name)
		if err != nil || name == "" {
			continue
		}
		seen := 0
		_ = filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error { // what cannot be read is not read by the command either
			if seen++; seen > mostFiles || source != "" {
				return fs.SkipAll
			}
			if info, err := os.Stat(file); err == nil && os.SameFile(info, out) && filepath.Ext(file) != ".html" {
				source = file
			}
			return nil
		})
	}
	if source != "" {
		return usagef("--%s %q would replace %q, which the command reads or a run has written: choose another name", flag, path, source)
	}
	return nil
}

// checkStdout refuses a file as standard output that the command reads: it would be empty, or have no end.
func checkStdout(c *cobra.Command) error {
	out, err := os.Stdout.Stat()
	if err != nil || !out.Mode().IsRegular() {
		return nil
	}
	for _, name := range readBy(c, "") {
		if info, err := os.Stat(name); err == nil && os.SameFile(info, out) {
			return usagef("standard output goes into %q, which the command reads: choose another name", name)
		}
	}
	return nil
}

// mostFiles is how many files of a folder checkOutput looks at: in a larger one a file may be missed.
const mostFiles = 100000

// quotedText matches a text in a run file.
var quotedText = regexp.MustCompile(`"([^"\n]*)"|'([^'\n]*)'`)

// readBy lists what may be paths that the command reads: its arguments and the values of its flags, but for the flag
// called output. For NAME=PATH it lists PATH, too, and it lists each text in quotes in these and in run files among them.
func readBy(c *cobra.Command, output string) (names []string) {
	values := c.Flags().Args()
	c.Flags().Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = append(values, list.GetSlice()...)
		} else if f.Name != output && f.Name != "title" {
			values = append(values, f.Value.String())
		}
	})
	for _, value := range values {
		_, part, _ := strings.Cut(value, "=") // NAME=PATH, or a setting
		for _, name := range []string{value, part} {
			if name == "" {
				continue
			}
			if filepath.Ext(name) != ".toml" {
				name = filepath.Join(name, "run.toml") // if name is the folder of a run
			}
			text, _ := files.Read(name, largestRunFile) // another reads the file, and says what is wrong with it
			for _, m := range quotedText.FindAllStringSubmatch(value+"\n"+string(text), -1) {
				names = append(names, m[1]+m[2])
			}
		}
		names = append(names, value, part)
	}
	return names
}
