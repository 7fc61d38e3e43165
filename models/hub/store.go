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

	"onering/internal/files"
	"onering/internal/strict"
)

// maxRef bounds the bytes of a file that holds a commit.
const maxRef = 1 << 10

// A store is a repository's folder in the cache.
type store struct {
	root string
	repo
}

func (s *store) dir(parts ...string) string {
	return filepath.Join(append([]string{s.root, s.folder()}, parts...)...)
}

// cached returns the folder of the revision's snapshot, or why it is not complete.
func (s *store) cached() (dir, missing string) {
	commit := s.revision
	if !isCommit(commit) {
		text, err := files.Read(s.dir("refs", filepath.FromSlash(s.revision)), maxRef)
		if err != nil {
			return "", fmt.Sprintf("revision %q is not in the cache (%s), and nothing is downloaded offline: unset "+
				"HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE and ONERING_OFFLINE, or download it on a machine with a network", s.revision, s.dir())
		}
		commit = strings.TrimSpace(string(text))
		if !namePart.MatchString(commit) {
			return "", fmt.Sprintf("%s does not contain a commit", s.dir("refs", filepath.FromSlash(s.revision)))
		}
	}
	dir = s.dir("snapshots", commit)
	names, err := s.readListing(commit)
	if err != nil {
		// Another program downloaded the snapshot: take the files that it has.
		if names, err = listFiles(dir); err != nil {
			return "", fmt.Sprintf("snapshot %s is not in the cache (%s)", commit, s.dir())
		}
	}
	needed, err := s.neededFiles(names, func(name string) ([]byte, error) {
		return files.ReadIn(filepath.Join(dir, filepath.FromSlash(name)), maxAnswer)
	})
	if err != nil {
		return "", fmt.Sprintf("the snapshot in the cache (%s) is not complete: %v", dir, err)
	}
	for _, name := range needed {
		if !exists(filepath.Join(dir, filepath.FromSlash(name))) {
			return "", fmt.Sprintf("the snapshot in the cache (%s) lacks %s", dir, name)
		}
	}
	return dir, ""
}

// listFiles returns the files below a folder, with slashes, without links to files that were deleted.
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

// listing returns the path of the list of all files of a commit, from which the files of
// a snapshot are known offline. It is not in the Python client's folder "trees", where
// that client would treat files that were not needed as missing.
func (s *store) listing(commit string) string { return s.dir("onering", commit+".json") }

func (s *store) readListing(commit string) (names []string, err error) {
	text, err := files.Read(s.listing(commit), maxAnswer)
	if err == nil {
		err = strict.JSON(text, &names)
	}
	for _, name := range names {
		if err == nil && !isRelative(name) {
			err = fmt.Errorf("file name %q", name)
		}
	}
	return names, err
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

// fillSnapshot downloads the needed files that the snapshot of a commit lacks, writes the list of all its files and,
// where the revision is a branch or a tag, the ref. It returns the snapshot's folder.
func (s *store) fillSnapshot(ctx context.Context, c *client, in info, o Options) (string, error) {
	dir := s.dir("snapshots", in.commit)
	get := func(name string) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if exists(path) {
			return nil
		}
		return s.addFile(ctx, c, in.commit, name, path, o)
	}
	needed, err := s.neededFiles(in.files, func(name string) ([]byte, error) {
		if err := get(name); err != nil {
			return nil, err
		}
		return files.ReadIn(filepath.Join(dir, filepath.FromSlash(name)), maxAnswer)
	})
	if err != nil {
		if errors.As(err, new(*fault)) || ctx.Err() != nil {
			return "", err
		}
		return "", &fault{Repo: s.id, Err: err}
	}
	for _, name := range needed {
		if err := get(name); err != nil {
			return "", err
		}
	}
	if err := s.writeListing(in); err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	if s.revision != in.commit { // a branch or a tag
		ref := s.dir("refs", filepath.FromSlash(s.revision))
		if old, err := files.Read(ref, maxRef); err != nil || string(old) != in.commit {
			if err := writeFile(ref, in.commit); err != nil {
				return "", fmt.Errorf("hub: %w", err)
			}
		}
	}
	return dir, nil
}

// addFile links a file of a snapshot to its blob, which it downloads unless another snapshot has it.
func (s *store) addFile(ctx context.Context, c *client, commit, name, path string, o Options) error {
	f, err := c.stat(ctx, s.repo, commit, name)
	if err != nil {
		return err
	}
	if s.kind == model && !strings.HasSuffix(name, ".safetensors") && f.size > c.unstated { // only weights may be larger
		return &fault{Repo: s.id, Err: errTooLarge, Detail: fmt.Sprintf("%s: %s states %d bytes, more than the %d of any such file",
			name, c.endpoint.Host, f.size, c.unstated)}
	}
	blob := s.dir("blobs", f.etag)
	locks := filepath.Join(s.root, ".locks", s.folder())
	for _, d := range []string{filepath.Dir(blob), locks, filepath.Dir(path)} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
	}
	unlock, err := files.Lock(ctx, filepath.Join(locks, f.etag+".lock"), func() error {
		o.Notice(fmt.Sprintf("waiting for another process that downloads %s of %s", name, s.id))
		return nil
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
	if err := linkToBlob(blob, path); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// linkToBlob makes path a relative symbolic link to blob, or a copy of it where the system has no symbolic links.
func linkToBlob(blob, path string) error {
	to, err := filepath.Rel(filepath.Dir(path), blob)
	if err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.%d.link", path, os.Getpid())
	os.Remove(temp) // a killed process may have left a link
	if os.Symlink(to, temp) == nil {
		return os.Rename(temp, path)
	}
	in, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer in.Close()
	return files.WriteFile(path, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// writeFile writes a small file completely or not at all.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return files.WriteFile(path, files.Content(text))
}
