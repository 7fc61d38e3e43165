package models

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
)

// Fault, if not nil, is asked before each operation on a file that a failure
// could tear, with the operation (create, write, sync, rename, mkdir, remove,
// append, truncate) and the path. What it returns is what the operation
// returns; a write then leaves half of its bytes. It is how tests make disks
// full, slow or deadly; it is set before anything is written, if at all.
var Fault func(op, path string) error

// Ask asks Fault.
func Ask(op, path string) error {
	if Fault == nil {
		return nil
	}
	return Fault(op, path)
}

// A faulty writer is a file whose writes ask Fault.
type faulty struct{ *os.File }

func (f faulty) Write(p []byte) (int, error) {
	if err := Ask("write", f.Name()); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

// WriteFile makes path hold what write writes: all of it, or what it held
// before. The bytes go to a hidden file beside path, to the disk, and only then
// under their name.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	tmp := temporary(path)
	if err := Ask("create", tmp); err != nil {
		return fmt.Errorf("models: write %s: %w", path, err)
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("models: write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(tmp)
			err = fmt.Errorf("models: write %s: %w", path, err)
		}
	}()
	if err := write(faulty{f}); err != nil {
		return err
	}
	if err := errors.Join(Ask("sync", tmp), f.Sync()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := Rename(tmp, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// WriteFolder makes the folder dir with what fill puts into the temporary
// folder it is given: dir appears when every file in it is on the disk, or not
// at all. A dir that exists and holds anything is an error (fs.ErrExist), since
// nothing is ever overwritten; missing parents are made. A killed process leaves
// at most a hidden folder ".NAME.tmp-..." beside dir.
func WriteFolder(dir string, fill func(tmp string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	exists, err := checkVacant(dir)
	if err != nil {
		return fmt.Errorf("models: write folder %s: %w", dir, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return fmt.Errorf("models: write folder %s: %w", dir, err)
	}
	tmp := temporary(dir)
	if err := Ask("mkdir", tmp); err != nil {
		return fmt.Errorf("models: write folder %s: %w", dir, err)
	}
	if err := os.Mkdir(tmp, 0o777); err != nil {
		return fmt.Errorf("models: write folder %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	if err := fill(tmp); err != nil {
		return err
	}
	if err := syncTree(tmp); err != nil {
		return fmt.Errorf("models: write folder %s: %w", dir, err)
	}
	if exists { // an empty one, which not every system renames onto
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("models: write folder: %w", err)
		}
	}
	if err := Rename(tmp, dir); err != nil {
		return fmt.Errorf("models: write folder: %w", err)
	}
	if err := syncFolder(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("models: write folder %s: %w", dir, err)
	}
	return nil
}

// Rename is os.Rename that asks Fault.
func Rename(from, to string) error {
	if err := Ask("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Temporary says whether a file or folder of this name, without its path, is
// what a killed process left of a WriteFile or WriteFolder.
func Temporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, ".tmp-")
}

// checkVacant says whether dir exists; it must then be an empty folder.
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

// temporary is a hidden name beside path that nothing else uses.
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.tmp-%08x", filepath.Base(path), rand.Uint32()))
}

// syncTree brings every file and folder under root to the disk.
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
		// Windows flushes only what is open for writing.
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// syncFolder brings a folder's list of names to the disk. Windows cannot and
// need not.
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
