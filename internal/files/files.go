// Package files opens files from elsewhere: those of a model, a data set, a run. A file has to be regular, since
// opening a named pipe waits for a writer and a device has no end. A file that is read into memory has a size limit,
// which is checked first. Links of a folder may not lead out of it: a model from elsewhere could have a file that is
// a link to a private one.
package files

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Open opens a regular file for reading. It follows links: path is what the user named.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(path)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	return checkOpened(f, err, path)
}

// checkOpened checks a file that was opened without waiting, again: since Open looked, another process may have
// replaced a regular file by a pipe. err is the error of opening it.
func checkOpened(f *os.File, err error, path string) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// pipeWait is how long the process at the other end of a named pipe may take to open it.
var pipeWait = 5 * time.Second

// Stream opens for reading what a user named: a file, a pipe or a device. A pipe without
// a writer is an error after pipeWait.
func Stream(path string) (io.ReadCloser, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err == nil && info.IsDir():
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a folder, not a file")}
	case err == nil && info.Mode()&fs.ModeNamedPipe != 0:
		return &pipe{f, time.Now().Add(pipeWait)}, nil
	case err == nil:
		return f, nil
	}
	f.Close()
	return nil, err
}

// A pipe is a named pipe whose first byte may take until a deadline.
type pipe struct {
	file  *os.File
	until time.Time // the deadline; zero once a byte was read
}

func (p *pipe) Close() error { return p.file.Close() }

// Read implements io.Reader. A pipe that no writer has opened reads as ended: until the deadline, Read waits for a
// first byte.
func (p *pipe) Read(b []byte) (n int, err error) {
	for {
		n, err = p.file.Read(b)
		switch {
		case n > 0:
			p.until = time.Time{}
			return n, err
		case err != io.EOF || p.until.IsZero() || len(b) == 0:
			return n, err
		case time.Now().After(p.until):
			return 0, fmt.Errorf("%s: nothing was written to the pipe in %v; start its writer first", p.file.Name(), pipeWait)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Append opens, or makes, a regular file to read it and to append to it. path may not be a link, which could lead the
// writes elsewhere. The file's name survives a power failure after it returns.
func Append(path string) (*os.File, error) {
	info, missing := os.Lstat(path)
	if missing == nil && !info.Mode().IsRegular() {
		return nil, notRegular(path)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR|noWait, 0o666)
	if err == nil && missing != nil {
		if err = syncFolder(filepath.Dir(path)); err != nil {
			f.Close()
		}
	}
	return checkOpened(f, err, path)
}

func notRegular(path string) error { return fmt.Errorf("%s is not a regular file", path) }

// Read returns the content of a regular file of at most limit bytes, which may not be
// Foreign. It follows links, as Open does.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	return readAll(f, err, path, limit)
}

// Sum returns the SHA-256 of a regular file in hexadecimal. It follows links, as Open does.
func Sum(path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readAll reads f, of at most limit bytes, and closes it, unless failed says why it could not be opened. path names
// the file in errors. It refuses a file that is Foreign.
func readAll(f fs.File, failed error, path string, limit int64) ([]byte, error) {
	if failed != nil {
		return nil, failed
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, notRegular(path)
	case info.Size() > limit:
		return nil, tooLarge(path, info.Size(), limit)
	}
	// The file may grow, and some files of the system state no size.
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = tooLarge(path, int64(len(text)), limit)
	}
	if what := Foreign(text); err == nil && what != "" {
		err = fmt.Errorf("%s is %s", path, what)
	}
	return text, err
}

func tooLarge(path string, size, limit int64) error {
	return fmt.Errorf("%s has %d bytes, more than the %d that such a file may have", path, size, limit)
}

// ReadFS is Read for a file of fsys, such as an embedded folder or FS of a Folder.
func ReadFS(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	return readAll(f, err, name, limit)
}

// A Folder opens the files of one folder. Names are relative to it, with the system's separators. Links may lead to
// anything in the folder, but not out of it. The one exception is Hugging Face's cache: the files of
// ROOT/snapshots/REVISION, and of folders in it, may be links to files in ROOT/blobs.
type Folder struct {
	dir  string
	real string // the folder's path without links
	root *os.Root
}

// OpenFolder opens a folder; dir itself may be a link.
func OpenFolder(dir string) (*Folder, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() { // opening a pipe would wait
		return nil, fmt.Errorf("%s is not a folder", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	return &Folder{dir, real, root}, nil
}

// Open opens a regular file of the folder for reading.
func (f *Folder) Open(name string) (*os.File, error) {
	path := filepath.Join(f.dir, name)
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%s is outside of the folder %s", path, f.dir)
	}
	target, err := filepath.EvalSymlinks(filepath.Join(f.real, name))
	if err != nil {
		return nil, withPath(path, err)
	}
	root, within := f.root, inside(f.real, target)
	if within == "" { // a link leads out of the folder: it may lead to the blobs of Hugging Face's cache alone
		blobs := blobsOf(f.real)
		if within = inside(blobs, target); within == "" {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("a link leads out of the folder, to %s; copy the file into the folder", target)}
		}
		if root, err = os.OpenRoot(blobs); err != nil {
			return nil, withPath(path, err)
		}
		defer root.Close()
	}
	// target has no links. If another process puts a link there now, root refuses one that leads out.
	info, err := root.Lstat(within)
	if err != nil {
		return nil, withPath(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path)
	}
	opened, err := root.OpenFile(within, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, withPath(path, err)
	}
	return checkOpened(opened, nil, path)
}

// Under returns the path without links of the folder path under root; path may be relative to root. It refuses a
// folder outside of root, without reading it, and one in which a link leads out of root.
func Under(root, path string) (string, error) {
	given, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	top, err := filepath.EvalSymlinks(given)
	if err != nil {
		return "", err
	}
	outside := fmt.Errorf("%s is not a folder under %s", path, root)
	if !filepath.IsAbs(path) {
		path = filepath.Join(given, path)
	}
	if inside(given, path) == "" && inside(top, path) == "" {
		return "", outside
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil || inside(top, dir) == "" {
		return "", outside
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", outside
	}
	entries := 0
	return dir, filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if entries++; err == nil && entries > maxEntries {
			err = fmt.Errorf("%s has more than %d entries", path, maxEntries)
		}
		if err != nil || e.Type()&fs.ModeSymlink == 0 {
			return err
		}
		if target, err := filepath.EvalSymlinks(at); err != nil || inside(top, target) == "" {
			return fmt.Errorf("the link %s leads out of %s", at, root)
		}
		return nil
	})
}

// maxEntries is the largest number of files in a folder whose links Under checks.
const maxEntries = 10_000

// inside returns the path of target relative to the folder dir, or "" if target is not in it.
func inside(dir, target string) string {
	within, err := filepath.Rel(dir, target)
	if dir == "" || err != nil || !filepath.IsLocal(within) {
		return ""
	}
	return within
}

// blobsOf returns the folder with the files of a snapshot in Hugging Face's cache,
// or "" if dir is not in such a snapshot.
func blobsOf(dir string) string {
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if snapshots := filepath.Dir(dir); filepath.Base(snapshots) == "snapshots" {
			return filepath.Join(filepath.Dir(snapshots), "blobs")
		}
	}
	return ""
}

// withPath returns err with the path that the caller gave.
func withPath(path string, err error) error {
	op := "open"
	if at := new(fs.PathError); errors.As(err, &at) {
		op, err = at.Op, at.Err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Read returns the content of a regular file of the folder, of at most limit bytes.
func (f *Folder) Read(name string, limit int64) ([]byte, error) {
	file, err := f.Open(name)
	return readAll(file, err, filepath.Join(f.dir, name), limit)
}

// FS returns the folder as an fs.FS that opens its regular files.
func (f *Folder) FS() fs.FS { return folderFS{f} }

type folderFS struct{ *Folder }

// Open implements fs.FS.
func (f folderFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := f.Folder.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err // return a plain nil, not file, which is a nil of another type
	}
	return file, nil
}

// ReadDir implements fs.ReadDirFS. It does not follow links.
func (f folderFS) ReadDir(name string) ([]fs.DirEntry, error) {
	info, err := f.root.Lstat(filepath.FromSlash(name))
	if err != nil {
		return nil, withPath(filepath.Join(f.dir, name), err)
	}
	if !info.IsDir() { // opening a pipe would wait
		return nil, fmt.Errorf("%s is not a folder", filepath.Join(f.dir, name))
	}
	return fs.ReadDir(f.root.FS(), name)
}

// Close closes the folder. Files that it opened stay open.
func (f *Folder) Close() error { return f.root.Close() }

// OpenIn opens a regular file of a folder; path is the folder and the file's name. It is
// for a program that opens one file of a folder whose files may be links.
func OpenIn(path string) (*os.File, error) {
	folder, err := OpenFolder(filepath.Dir(path))
	if at := new(fs.PathError); errors.As(err, &at) {
		err = &fs.PathError{Op: "open", Path: path, Err: at.Err}
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return folder.Open(filepath.Base(path))
}

// ReadIn returns the content of a regular file of a folder, of at most limit bytes; see OpenIn.
func ReadIn(path string, limit int64) ([]byte, error) {
	f, err := OpenIn(path)
	return readAll(f, err, path, limit)
}

// Glob returns the paths in the folder dir that match pattern, with slashes, in the order
// of names. dir is never part of the pattern, whatever letters it has.
func Glob(dir, pattern string) []string {
	found, _ := fs.Glob(os.DirFS(dir), pattern) // the program's own pattern is valid
	for i, name := range found {
		found[i] = filepath.Join(dir, filepath.FromSlash(name))
	}
	return found
}

// Counted returns a reader of r that reports how many bytes were read, beginning with done.
func Counted(r io.Reader, done int64, report func(done int64)) io.Reader {
	return &counted{r, done, report}
}

type counted struct {
	io.Reader
	done   int64
	report func(done int64)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.done += int64(n)
	c.report(c.done)
	return n, err
}

// Content returns a function that writes a text, for WriteFile.
func Content[T string | []byte](text T) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write([]byte(text))
		return err
	}
}

// ReadLine returns the next line with its newline, valid until the next call; appending to it copies it. A last line
// without a newline comes with io.EOF, and of a line longer than most its first bytes with bufio.ErrTooLong.
func ReadLine(in *bufio.Reader, most int) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return slices.Clip(line), err
	}
	for long := slices.Clone(line); ; {
		line, err = in.ReadSlice('\n')
		if long = append(long, line...); len(long) > most {
			return long, bufio.ErrTooLong
		}
		if err != bufio.ErrBufferFull {
			return long, err
		}
	}
}

// EachLine calls do for each complete line of the file that OpenIn opens. An error names the file and the line. A
// last line without a newline is left out: a process may still be writing it.
func EachLine(path string, most int, do func(line []byte) error) error {
	f, err := OpenIn(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	for number := 1; ; number++ {
		line, err := ReadLine(in, most)
		if err == io.EOF {
			return nil
		}
		if err == bufio.ErrTooLong {
			err = fmt.Errorf("longer than %d MiB", most>>20)
		}
		if err == nil {
			err = do(line)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", path, number, err)
		}
	}
}
