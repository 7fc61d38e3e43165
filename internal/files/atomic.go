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
	"time"

	"github.com/gofrs/flock"
)

// Fault lets tests simulate a disk that is full or slow, or a process that is killed. If it is not nil, it is called
// before each operation that changes a file, with the operation (create, write, sync, rename, mkdir, remove, append,
// truncate) and the path. An error that it returns becomes the operation's error; a failed write leaves half of its
// bytes. Set it before anything is written.
var Fault func(op, path string) error

// FaultOf calls Fault, if it is set, and returns its error.
func FaultOf(op, path string) error {
	if Fault == nil {
		return nil
	}
	return Fault(op, path)
}

// A steady is a file that the system writes to the disk while later bytes arrive. It calls Fault before each write.
// It offers no other way to write, which would bypass that.
type steady struct {
	file             *os.File
	sum              hash.Hash // hash of the bytes written, or nil
	written, started int64     // bytes given to the system, and those of them that it was told to write to the disk
}

// atOnce is how many bytes a steady gives to the system before it asks to have them written.
const atOnce = 32 << 20

// Write implements io.Writer. If Fault fails, half of the bytes are written, as by a disk that is full.
func (f *steady) Write(p []byte) (n int, err error) {
	if err := FaultOf("write", f.file.Name()); err != nil {
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
			startWriteback(f.file, f.started, f.written-f.started)
			f.started = f.written
		}
	}
	return n, nil
}

// put writes bytes while another goroutine hashes them: either takes as long as the disk,
// and hashing the file afterwards would read all of it again.
func (f *steady) put(part []byte) (int, error) {
	if f.sum == nil {
		return f.file.Write(part)
	}
	var hashing sync.WaitGroup
	hashing.Go(func() { f.sum.Write(part) })
	defer hashing.Wait()
	return f.file.Write(part)
}

// WriteFile replaces the content of path atomically with what write writes: after a failure, path has its old
// content. The bytes go to a hidden file beside path, which is synced and then renamed to path. Links are followed.
// If path is a device or a pipe, the bytes are written to it.
func WriteFile(path string, write func(io.Writer) error) error {
	to, info, err := destination(path)
	switch {
	case err != nil:
	case info != nil && info.IsDir():
		err = errors.New("it is a folder; name a file")
	case info != nil && !info.Mode().IsRegular():
		err = writeStream(to, write)
	default:
		removeStale(to)
		return writeFile(to, nil, true, write) // without a checksum, and synced
	}
	if err != nil {
		err = fmt.Errorf("files: write %s: %w", path, err)
	}
	return err
}

// destination returns the path that the links of path lead to and what is there, nil if nothing is. /dev/stdout and
// the like may lead to a pipe without a name, which has to be opened by the link.
func destination(path string) (string, fs.FileInfo, error) {
	given := path
	for range 40 { // as many links as Linux follows
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return path, nil, nil
		}
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return path, info, err
		}
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return path, info, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(to) { // a ".." in the link is relative to where the link really is
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", nil, err
			}
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", nil, fmt.Errorf("the links from %s do not end", given)
}

// writeStream writes to a device or a pipe, whose reader may take pipeWait to come.
func writeStream(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|noWait, 0)
	for began := time.Now(); errors.Is(err, syscall.ENXIO) && time.Since(began) < pipeWait; {
		time.Sleep(20 * time.Millisecond)
		f, err = os.OpenFile(path, os.O_WRONLY|noWait, 0)
	}
	if errors.Is(err, syscall.ENXIO) {
		return fmt.Errorf("nothing reads from it; start its reader first (%w)", err)
	}
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// writeFile replaces the file at path by what write writes, and adds that to sum unless it is nil. Unless synced, a
// power failure may lose the new content; a failure of write never changes the old one.
func writeFile(path string, sum hash.Hash, synced bool, write func(io.Writer) error) (err error) {
	tmp := temporary(path)
	if err := FaultOf("create", tmp); err != nil {
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
	release, err := lockTemporary(tmp) // other processes remove what nobody has locked
	if err != nil {
		return err
	}
	defer release()
	out := &steady{file: f, sum: sum}
	if err := write(out); err != nil {
		return err
	}
	if !synced {
		startWriteback(f, out.started, out.written-out.started) // of the bytes after the newest that Write began with
	} else if err := errors.Join(FaultOf("sync", tmp), f.Sync()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if !synced {
		return renameUnsynced(tmp, path)
	}
	return Rename(tmp, path)
}

// A Put writes a file of the given name: WriteFile, or the method of a Draft.
type Put func(name string, write func(io.Writer) error) error

// A Draft is a folder that WriteFolder fills.
type Draft struct {
	Dir string // the temporary folder
	// Summed asks for checksums of the files; set it before the first file.
	Summed bool

	sums sync.Map // SHA-256 in hexadecimal, by name with slashes
}

// WriteFile writes a file of the folder; its name may have folders in front. The file is not synced: WriteFolder
// syncs all files at the end, when the disk has most of their bytes.
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

// Sum returns the SHA-256, in hexadecimal, of a file that WriteFile wrote. It was
// computed while the bytes were written.
func (d *Draft) Sum(name string) (sum string, ok bool) {
	x, ok := d.sums.Load(filepath.ToSlash(name))
	sum, _ = x.(string)
	return sum, ok
}

// WriteFolder creates the folder dir atomically. It calls fill with a temporary folder, syncs every file in it,
// however it was written, and renames the folder to dir. It overwrites nothing: a dir that exists and is not empty is
// an error (fs.ErrExist). Missing parents are created. A killed process leaves at most a hidden folder
// ".NAME.tmp-..." beside dir, which the next call removes.
func WriteFolder(dir string, fill func(d *Draft) error) (err error) {
	if dir, err = filepath.Abs(dir); err == nil {
		dir, _, err = destination(dir)
	}
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	exists, err := checkVacant(dir)
	if err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	if err := MakeFolder(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	removeStale(dir)
	tmp := temporary(dir)
	if err := FaultOf("mkdir", tmp); err != nil {
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
	release, err := lockTemporary(tmp) // other processes remove what nobody has locked
	if err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	defer release()
	if err := fill(&Draft{Dir: tmp}); err != nil {
		return err
	}
	if err := syncTree(tmp); err != nil {
		return fmt.Errorf("files: write folder %s: %w", dir, err)
	}
	if exists { // the folder is empty; some systems cannot rename onto an empty folder
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("files: write folder: %w", err)
		}
	}
	if err := Rename(tmp, dir); err != nil {
		return fmt.Errorf("files: write folder: %w", err)
	}
	return nil
}

// MakeFolder makes a folder and the missing ones above it, whose names it syncs, so that they survive a power failure
// after it returns.
func MakeFolder(dir string) error {
	var missing []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, at)
	}
	err := os.MkdirAll(dir, 0o777)
	for _, made := range missing {
		if err == nil {
			err = syncFolder(filepath.Dir(made))
		}
	}
	return err
}

// Rename is os.Rename that calls Fault first. The new name survives a power failure after it returns.
func Rename(from, to string) error {
	if err := renameUnsynced(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}

// renameUnsynced is Rename, but a power failure may undo it.
func renameUnsynced(from, to string) error {
	if err := FaultOf("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Temporary reports whether name, without its path, is that of a temporary file
// or folder that WriteFile or WriteFolder leaves behind when the process is killed.
func Temporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, ".tmp-")
}

// checkVacant reports whether dir exists. It is an error if dir exists and is not an empty folder.
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

// lockTemporary locks a temporary file or folder until release, so that removeStale of another process does not
// remove it. Windows cannot rename open files, so there nothing is locked, and removeStale does nothing.
func lockTemporary(tmp string) (release func(), err error) {
	if goruntime.GOOS == "windows" {
		return func() {}, nil
	}
	l := flock.New(tmp, flock.SetFlag(os.O_RDONLY))
	l.Lock()               // some file systems have no locks; then none is taken
	_, err = os.Lstat(tmp) // it may have been removed before the lock was taken
	return func() { l.Close() }, err
}

// removeStale removes the temporary files and folders that killed processes left when they wrote path: those that
// nobody has locked.
func removeStale(path string) {
	if goruntime.GOOS == "windows" {
		return
	}
	dir, prefix := filepath.Dir(path), "."+filepath.Base(path)+".tmp-"
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !e.IsDir() && !e.Type().IsRegular() {
			continue
		}
		stale := filepath.Join(dir, e.Name())
		l := flock.New(stale, flock.SetFlag(os.O_RDONLY))
		if locked, err := l.TryLock(); locked && err == nil {
			os.RemoveAll(stale)
		}
		l.Close()
	}
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
		return errors.Join(FaultOf("sync", path), f.Sync(), f.Close())
	})
}

// syncFolder syncs a folder's list of names to the disk. Windows has no such operation and does not need it.
func syncFolder(dir string) error {
	if goruntime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(FaultOf("sync", dir), f.Sync(), f.Close())
}
