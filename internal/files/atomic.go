package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Fault lets tests simulate a disk that is full or slow, or a process that is
// killed. If it is not nil, it is called before each operation that changes a
// file, with the operation (create, write, sync, rename, mkdir, remove, append,
// truncate) and the path. An error that it returns becomes the operation's error;
// a failed write leaves half of its bytes. Set it before anything is written.
var Fault func(op, path string) error

// Ask calls Fault, if it is set, and returns its error.
func Ask(op, path string) error {
	if Fault == nil {
		return nil
	}
	return Fault(op, path)
}

// A steady writer is a file whose bytes are on their way to the disk while the next
// ones are written. It calls Fault before each write. It has none of the file's other
// ways to write, which would go past it.
type steady struct {
	file             *os.File
	sum              hash.Hash // of the bytes written, or nil
	written, started int64     // bytes that the system has, and that it was told to write
}

// atOnce is how many bytes a steady writer gives to the system before it has them
// written.
const atOnce = 32 << 20

func (f *steady) Write(p []byte) (n int, err error) {
	if err := Ask("write", f.file.Name()); err != nil {
		n, _ := f.file.Write(p[:len(p)/2])
		return n, err
	}
	for part := range slices.Chunk(p, atOnce) {
		k, err := f.put(part)
		n, f.written = n+k, f.written+int64(k)
		if err != nil {
			return n, err
		}
		if f.written-f.started >= atOnce {
			startWriting(f.file, f.started, f.written-f.started)
			f.started = f.written
		}
	}
	return n, nil
}

// put writes bytes while another thread adds them to the sum: either takes as long as
// the disk, and the sum taken from the file afterwards would read all of it again.
func (f *steady) put(part []byte) (int, error) {
	if f.sum == nil {
		return f.file.Write(part)
	}
	var beside sync.WaitGroup
	beside.Go(func() { f.sum.Write(part) })
	defer beside.Wait()
	return f.file.Write(part)
}

// WriteFile replaces the content of path atomically with what write writes: after
// a failure, path has its old content. The bytes go to a hidden file beside path,
// which is synced and then renamed to path.
func WriteFile(path string, write func(io.Writer) error) error {
	return writeFile(path, nil, true, write)
}

func writeFile(path string, sum hash.Hash, synced bool, write func(io.Writer) error) (err error) {
	tmp := temporary(path)
	if err := Ask("create", tmp); err != nil {
		return fmt.Errorf("files: write %s: %w", path, err)
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("files: write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(tmp)
			err = fmt.Errorf("files: write %s: %w", path, err)
		}
	}()
	out := &steady{file: f, sum: sum}
	if err := write(out); err != nil {
		return err
	}
	if !synced {
		startWriting(f, out.started, out.written-out.started)
	} else if err := errors.Join(Ask("sync", tmp), f.Sync()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := Rename(tmp, path); err != nil || !synced {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// A Put writes a file of this name: WriteFile, or the method of a Draft.
type Put func(name string, write func(io.Writer) error) error

// A Draft is a folder that WriteFolder fills.
type Draft struct {
	Dir string // temporary
	// Summed has sums taken of the files; it is set before the first.
	Summed bool

	sums sync.Map // SHA-256 in hexadecimal, by name with slashes
}

// WriteFile writes a file of the folder, whose name may begin with folders in it, as
// WriteFile does. It is not synced: WriteFolder does that with all files at the end, when
// the disk has most of their bytes.
func (d *Draft) WriteFile(name string, write func(io.Writer) error) error {
	path := filepath.Join(d.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("files: write %s: %w", path, err)
	}
	var sum hash.Hash
	if d.Summed {
		sum = sha256.New()
	}
	if err := writeFile(path, sum, false, write); err != nil || sum == nil {
		return err
	}
	d.sums.Store(filepath.ToSlash(name), hex.EncodeToString(sum.Sum(nil)))
	return nil
}

// Sum returns the SHA-256, in hexadecimal, of a file that WriteFile wrote, taken while its
// bytes were written.
func (d *Draft) Sum(name string) (sum string, ok bool) {
	x, ok := d.sums.Load(filepath.ToSlash(name))
	sum, _ = x.(string)
	return sum, ok
}

// WriteFolder creates the folder dir atomically. It calls fill with a temporary
// folder, syncs every file in it, however it was written, and renames the folder to dir. It
// overwrites nothing: a dir that exists and is not empty is an error
// (fs.ErrExist). Missing parents are created. A killed process leaves at most a
// hidden folder ".NAME.tmp-..." beside dir.
func WriteFolder(dir string, fill func(d *Draft) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	exists, err := checkVacant(dir)
	if err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	tmp := temporary(dir)
	if err := Ask("mkdir", tmp); err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	if err := os.Mkdir(tmp, 0o777); err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	if err := fill(&Draft{Dir: tmp}); err != nil {
		return err
	}
	if err := syncTree(tmp); err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	if exists { // it is empty; some systems cannot rename onto an empty folder
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("files: write folder: %w", err)
		}
	}
	if err := Rename(tmp, dir); err != nil {
		return fmt.Errorf("files: write folder: %w", err)
	}
	if err := syncFolder(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	return nil
}

// Rename is os.Rename that calls Fault first.
func Rename(from, to string) error {
	if err := Ask("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Temporary reports whether name, without its path, is that of a temporary file
// or folder that WriteFile or WriteFolder leaves behind when the process is killed.
func Temporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, ".tmp-")
}

// checkVacant reports whether dir exists. It is an error if dir exists and is not
// an empty folder.
func checkVacant(dir string) (exists bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, syscall.ENOTDIR):
		return false, errors.New("it, or what should be a folder above it, is a file; name another folder")
	case err != nil:
		return false, err
	case len(entries) > 0:
		return true, fmt.Errorf("it is there and not empty (%w); name another folder, or remove this one", fs.ErrExist)
	}
	return true, nil
}

// temporary returns an unused hidden name beside path.
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.tmp-%08x", filepath.Base(path), rand.Uint32()))
}

// syncTree syncs every file and folder under root to the disk.
func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return syncFolder(path)
		case !d.Type().IsRegular():
			return nil
		}
		// Windows syncs only files that are open for writing.
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(Ask("sync", path), f.Sync(), f.Close())
	})
}

// syncFolder syncs a folder's list of names to the disk. Windows has no such
// operation and does not need it.
func syncFolder(dir string) error {
	if goruntime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
