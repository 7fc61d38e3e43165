package rundir

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/models"
)

// sumsFile lists the SHA-256 of every other file of a checkpoint, in the format of sha256sum: in the
// checkpoint's folder `sha256sum -c state/SHA256SUMS` checks it by hand.
const sumsFile = "state/SHA256SUMS"

// maxSums bounds how much of a list is read, in bytes.
const maxSums = 1 << 20

// writeSums lists the checksums of the files of a draft. A file whose checksum was taken
// while it was written is not read again.
func writeSums(d *files.Draft) error {
	names, err := filesBelow(d.Dir)
	if err != nil {
		return err
	}
	sums, unread := make(map[string]string), []string(nil)
	for _, name := range names {
		sum, ok := d.Sum(name)
		sums[name] = sum
		if !ok {
			unread = append(unread, name)
		}
	}
	read, err := sumFiles(d.Dir, unread)
	if err != nil {
		return err
	}
	for i, name := range unread {
		sums[name] = read[i]
	}
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s  %s\n", sums[name], name)
	}
	return d.WriteFile(filepath.FromSlash(sumsFile), files.Content(b.String()))
}

// verifySums checks that the files below dir are those of its list, to the byte.
// The error names the first file that differs.
func verifySums(dir string) error {
	f, err := files.OpenIn(filepath.Join(dir, filepath.FromSlash(sumsFile)))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: the checkpoint is damaged, or the folder is not a checkpoint", sumsFile)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sums, err := parseSums(f)
	if err != nil {
		return fmt.Errorf("%s: %w", sumsFile, err)
	}
	names, err := filesBelow(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := sums[name]; !ok {
			return fmt.Errorf("%s was added to it", name)
		}
	}
	found, err := sumFiles(dir, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		if want := sums[name]; found[i] != want {
			return fmt.Errorf("%s is damaged or was edited: its SHA-256 is %.16s..., it was written with %.16s", name, found[i], want)
		}
		delete(sums, name)
	}
	if left := slices.Sorted(maps.Keys(sums)); len(left) > 0 {
		return fmt.Errorf("%s is missing", left[0])
	}
	return nil
}

// parseSums reads a list: lines of a sum, two spaces and a path with slashes.
func parseSums(r io.Reader) (map[string]string, error) {
	sums := make(map[string]string)
	lines := bufio.NewScanner(io.LimitReader(r, maxSums))
	lines.Buffer(nil, 2*maxSums)
	for n := 1; lines.Scan(); n++ {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		raw, err := hex.DecodeString(sum)
		if !ok || err != nil || len(raw) != sha256.Size || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("line %d: want a SHA-256, two spaces and a file's name", n)
		}
		if _, twice := sums[name]; twice {
			return nil, fmt.Errorf("line %d: %q is there twice", n, name)
		}
		sums[name] = sum
	}
	return sums, lines.Err()
}

// filesBelow lists the files below dir except the list of sums, sorted, with slashes in their paths. Anything
// but files and folders is an error: a link could lead out of the checkpoint.
func filesBelow(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !e.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		if name != sumsFile {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// sumFiles returns the sums of files below dir, in their order. It reads several files at
// once, since SHA-256 can be slower than a disk on a processor without instructions for it.
func sumFiles(dir string, names []string) ([]string, error) {
	sums, errs := make([]string, len(names)), make([]error, len(names))
	models.AtOnce(runtime.GOMAXPROCS(0), len(names), func(i int) {
		sums[i], errs[i] = files.Sum(filepath.Join(dir, filepath.FromSlash(names[i])))
	})
	return sums, errors.Join(errs...)
}
