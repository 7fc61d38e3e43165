package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A store is a repository's folder in the cache.
type store struct {
	root string
	repo
}

func (s *store) dir(parts ...string) string {
	return filepath.Join(append([]string{s.root, s.folder()}, parts...)...)
}

// cached returns the snapshot of the revision, "" and why where it is not whole.
func (s *store) cached() (dir, missing string) {
	commit := s.revision
	if !isCommit(commit) {
		text, err := os.ReadFile(s.dir("refs", filepath.FromSlash(s.revision)))
		if err != nil {
			return "", fmt.Sprintf("revision %q is not in the cache (%s), and offline nothing is fetched: unset HF_HUB_OFFLINE, or fetch it where there is a network", s.revision, s.dir())
		}
		commit = strings.TrimSpace(string(text))
		if !namePart.MatchString(commit) {
			return "", fmt.Sprintf("%s holds no commit", s.dir("refs", filepath.FromSlash(s.revision)))
		}
	}
	dir = s.dir("snapshots", commit)
	files, err := s.readListing(commit)
	if err != nil {
		// A snapshot of another program: what is there is all that is known.
		if files, err = listFiles(dir); err != nil {
			return "", fmt.Sprintf("snapshot %s is not in the cache (%s)", commit, s.dir())
		}
	}
	needed, err := s.needed(files, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))) })
	if err != nil {
		return "", fmt.Sprintf("the snapshot in the cache (%s) is not whole: %v", dir, err)
	}
	for _, name := range needed {
		if !exists(filepath.Join(dir, filepath.FromSlash(name))) {
			return "", fmt.Sprintf("the snapshot in the cache (%s) lacks %s", dir, name)
		}
	}
	return dir, ""
}

// listFiles returns the files below a folder, with slashes, but not links to
// what is gone.
func listFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !exists(path) {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, filepath.ToSlash(name))
		return err
	})
	return files, err
}

// listing is where the names of all files of a commit are kept, so that it is
// known offline what belongs to a snapshot. It has a name of its own: in the
// Python client's (trees) it would tell that client that files are missing which
// nobody needs.
func (s *store) listing(commit string) string { return s.dir("onering", commit+".json") }

func (s *store) readListing(commit string) (files []string, err error) {
	text, err := os.ReadFile(s.listing(commit))
	if err == nil {
		err = json.Unmarshal(text, &files)
	}
	for _, name := range files {
		if err == nil && !isRelative(name) {
			err = fmt.Errorf("file name %q", name)
		}
	}
	return files, err
}

func (s *store) writeListing(in info) error {
	path := s.listing(in.commit)
	if exists(path) {
		return nil
	}
	text, err := json.Marshal(in.files)
	if err != nil {
		return err
	}
	return writeFile(path, string(text))
}

// fill fetches what the snapshot lacks and then refers to it.
func (s *store) fill(ctx context.Context, c *client, in info, o Options) (string, error) {
	dir := s.dir("snapshots", in.commit)
	get := func(name string) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if exists(path) {
			return nil
		}
		return s.add(ctx, c, in.commit, name, path, o)
	}
	needed, err := s.needed(in.files, func(name string) ([]byte, error) {
		if err := get(name); err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	})
	if err != nil {
		var e *Error
		if errors.As(err, &e) || ctx.Err() != nil {
			return "", err
		}
		return "", &Error{Repo: s.id, Err: err}
	}
	for _, name := range needed {
		if err := get(name); err != nil {
			return "", err
		}
	}
	if err := s.writeListing(in); err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	if s.revision != in.commit {
		ref := s.dir("refs", filepath.FromSlash(s.revision))
		if old, err := os.ReadFile(ref); err != nil || string(old) != in.commit {
			if err := writeFile(ref, in.commit); err != nil {
				return "", fmt.Errorf("hub: %w", err)
			}
		}
	}
	return dir, nil
}

// add fetches a file's blob, unless another snapshot has it, and links to it.
func (s *store) add(ctx context.Context, c *client, commit, name, path string, o Options) error {
	f, err := c.stat(ctx, s.repo, commit, name)
	if err != nil {
		return err
	}
	blob := s.dir("blobs", f.etag)
	locks := filepath.Join(s.root, ".locks", s.folder())
	for _, d := range []string{filepath.Dir(blob), locks, filepath.Dir(path)} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
	}
	unlock, err := lock(ctx, filepath.Join(locks, f.etag+".lock"), func() {
		o.Notice(fmt.Sprintf("waiting for another process that fetches %s of %s", name, s.id))
	})
	if err != nil {
		return fmt.Errorf("hub: lock of %s: %w", name, err)
	}
	defer unlock()
	if !exists(blob) {
		incomplete := blob + ".incomplete"
		if err := c.download(ctx, s.repo, f, incomplete, o.Progress); err != nil {
			return err
		}
		if err := os.Rename(incomplete, blob); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
	}
	if err := link(blob, path); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// link makes path a relative symbolic link to blob; where the system has none
// to give, a copy.
func link(blob, path string) error {
	to, err := filepath.Rel(filepath.Dir(path), blob)
	if err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.%d.link", path, os.Getpid())
	os.Remove(temp) // of a process that died
	if err := os.Symlink(to, temp); err != nil {
		if err := copyFile(blob, temp); err != nil {
			os.Remove(temp)
			return err
		}
	}
	return os.Rename(temp, path)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// writeFile writes a small file whole or not at all.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
