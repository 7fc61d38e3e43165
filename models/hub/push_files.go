package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"onering/internal/files"
)

// sampleSize is how many bytes of a file's beginning the hub sees before it says how to
// send the file.
const sampleSize = 512

// A Source is a file that Push sends.
type Source struct {
	Name string // its name in the repository, with slashes
	Size int64
	// Default leaves an existing file of the name in the repository unchanged.
	Default bool

	open func() (content, error)
}

// A content is an opened source.
type content struct {
	io.ReaderAt
	io.Closer
	size    int64
	modTime time.Time
}

// Text returns a source with a given content.
func Text(name, text string) Source {
	return Source{Name: name, Size: int64(len(text)), open: func() (content, error) {
		return content{strings.NewReader(text), io.NopCloser(nil), int64(len(text)), time.Time{}}, nil
	}}
}

// Sources lists the files of a model folder that are pushed: all but hidden ones
// and those in a checkpoint's folder state. Links may lead to files of the folder.
func Sources(dir string) ([]Source, error) {
	var out []Source
	root := dir + string(filepath.Separator) // so that a dir that is a link is followed
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("hub: %w", err)
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil || name == ".":
			return err
		case strings.HasPrefix(e.Name(), "."), name == "state":
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		}
		source := Source{Name: filepath.ToSlash(name), open: func() (content, error) { return openContent(dir, name) }}
		if !isRelative(source.Name) {
			return fmt.Errorf("hub: %s: a repository cannot hold a file of this name", path)
		}
		opened, err := source.open() // for its size, and to see that it can be read
		if err != nil {
			return err
		}
		opened.Close()
		source.Size = opened.size
		out = append(out, source)
		return nil
	})
	return out, err
}

// openContent opens a file to push, with its size and time.
func openContent(dir, name string) (c content, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("hub: %w", err)
		}
	}()
	folder, err := files.OpenFolder(dir)
	if err != nil {
		return c, err
	}
	defer folder.Close()
	f, err := folder.Open(name)
	if err != nil {
		return c, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return c, err
	}
	return content{f, f, info.Size(), info.ModTime()}, nil
}

// An outgoing is a file to push, with what is known about it.
type outgoing struct {
	Source
	large   bool
	content []byte // content of a file that is not large
	oid     string // checksum: SHA-256 for large files, git's SHA-1 for others
	modTime time.Time

	onBranch, keepsOther, ignored bool   // see pushedFile
	delivered                     string // the hub has the bytes: sent or stored
}

// pending says whether the commit has to contain the file.
func (f *outgoing) pending() bool { return !f.onBranch && !f.keepsOther && !f.ignored }

// state returns what was done with the file.
func (f *outgoing) state() string {
	switch {
	case f.delivered != "":
		return f.delivered
	case f.ignored:
		return "ignored"
	case f.onBranch:
		return "unchanged"
	}
	return "kept"
}

// sample returns the beginning of the file.
func (f *outgoing) sample() ([]byte, error) {
	c, err := f.open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	text, err := io.ReadAll(io.NewSectionReader(c, 0, min(f.Size, sampleSize)))
	if err != nil {
		return nil, fmt.Errorf("hub: %s: %w", f.Name, err)
	}
	return text, nil
}

// read computes the checksum of the file, and stores the content of one that is not large.
func (f *outgoing) read(ctx context.Context) error {
	c, err := f.open()
	if err != nil {
		return err
	}
	defer c.Close()
	f.modTime, f.content = c.modTime, nil
	from := cancelled{ctx, io.NewSectionReader(c, 0, f.Size)}
	var sum hash.Hash
	if f.large {
		sum = sha256.New()
		_, err = io.Copy(sum, from)
	} else {
		f.content, err = io.ReadAll(from)
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00%s", len(f.content), f.content)
	}
	if err != nil {
		return fmt.Errorf("hub: %s: %w", f.Name, err)
	}
	f.oid = hex.EncodeToString(sum.Sum(nil))
	return f.unchanged()
}

// unchanged returns an error if the file has changed since read.
func (f *outgoing) unchanged() error {
	c, err := f.open()
	if err != nil {
		return err
	}
	defer c.Close()
	if c.size != f.Size || !c.modTime.Equal(f.modTime) {
		return fmt.Errorf("hub: %s changed during the push: nothing was committed; push again when nothing writes to the folder", f.Name)
	}
	return nil
}

// cancelled is a reader that ends with its context.
type cancelled struct {
	ctx context.Context
	io.Reader
}

func (c cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(p)
}
