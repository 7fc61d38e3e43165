package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// maxPieces is the greatest number of requests for one file, each for the rest that
// interrupted ones left.
const maxPieces = 100

// download downloads a file to path and compares its checksum. An existing file at path
// counts as the beginning that an earlier download left there.
func (c *client) download(ctx context.Context, r repo, f remote, path string, progress func(file string, done, total int64)) error {
	for again := false; ; again = true {
		if err := c.downloadRest(ctx, r, f, path, progress); err != nil {
			return err
		}
		ok, err := hasChecksum(path, f.etag)
		if err != nil {
			return fmt.Errorf("hub: %w", err)
		}
		if ok {
			return nil
		}
		// The beginning may belong to another version: download all of it once.
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
		if again {
			return &fault{Repo: r.id, Err: errChecksum, Detail: fmt.Sprintf("%s does not have the checksum that %s gives (%s): it is not used",
				f.name, c.endpoint.Host, f.etag)}
		}
		c.notice(fmt.Sprintf("hub: %s: %s has a wrong checksum; downloading it again", r.id, f.name))
	}
}

// downloadRest appends to the file at path until it has all bytes of f. It requests the rest again after an interruption, up
// to c.attempts times without progress; the checksum is the caller's matter.
func (c *client) downloadRest(ctx context.Context, r repo, f remote, path string, progress func(file string, done, total int64)) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	defer file.Close()
	have, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if f.size >= 0 && have > f.size { // it is no beginning of this file
		have = 0
	}
	done := false
	for failures, pieces := 0, 0; !done; pieces++ {
		progress(f.name, have, max(0, f.size))
		if f.size >= 0 && have == f.size {
			break
		}
		before := have
		have, done, err = c.getRest(ctx, r, f, file, have, progress)
		if err != nil {
			if errors.As(err, new(*fault)) || ctx.Err() != nil || errors.Is(err, errDisk) {
				return err // request retried it already, the hub refused, or the disk failed
			}
			failures++
			if have > before { // count failures without progress
				failures = 1
			}
			if failures > c.attempts || pieces >= maxPieces {
				return &fault{Repo: r.id, Err: err, Detail: fmt.Sprintf("%s: %v; the part that was downloaded is kept", f.name, err)}
			}
			if err := c.sleep(ctx, backoff(failures)); err != nil {
				return err
			}
		}
	}
	// The existing file may have been longer.
	if err := cmp.Or(file.Truncate(have), file.Sync()); err != nil {
		return fmt.Errorf("hub: %w: %w", errDisk, err)
	}
	return nil
}

var (
	errDisk     = errors.New("writing")
	errTooLarge = errors.New("too large")
)

// getRest requests the bytes after the first have bytes and writes them to the file. It returns how many
// right bytes the file has then, 0 if what is there cannot be trusted, and whether it is complete.
func (c *client) getRest(ctx context.Context, r repo, f remote, file *os.File, have int64, progress func(file string, done, total int64)) (int64, bool, error) {
	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := c.request(ctx, r, f.name, call{method: http.MethodGet, address: f.address, header: header})
	if err != nil {
		return have, false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		have = 0 // some servers send the whole file even if a part was requested
	case http.StatusPartialContent:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
			return 0, false, fmt.Errorf("the bytes from %d on were requested, and the answer has %q", have, resp.Header.Get("Content-Range"))
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if have > 0 {
			return 0, false, errors.New("the part that was downloaded before is longer than the file")
		}
		fallthrough // no part was requested
	default:
		return have, false, c.refusal(r, f.name, resp)
	}
	if _, err := file.Seek(have, io.SeekStart); err != nil {
		return have, false, fmt.Errorf("hub: %w: %w", errDisk, err)
	}
	if f.size < 0 && resp.ContentLength >= 0 {
		f.size = have + resp.ContentLength
	}
	return c.appendBody(r, resp.Body, f, file, have, progress)
}

// appendBody appends the rest of a file, of which have bytes exist, from an open connection. It returns how many
// bytes exist then, 0 if the answer cannot be of this file, and whether that is all.
func (c *client) appendBody(r repo, from io.Reader, f remote, file *os.File, have int64, progress func(file string, done, total int64)) (int64, bool, error) {
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if f.size >= 0 && have+int64(n) > f.size {
				return 0, false, fmt.Errorf("the answer is longer than the %d bytes of the file", f.size)
			}
			if f.size < 0 && have+int64(n) > c.unstated {
				return 0, false, &fault{Repo: r.id, Err: errTooLarge, Detail: fmt.Sprintf("%s: %s states no size, and sends more than %d bytes",
					f.name, c.endpoint.Host, c.unstated)}
			}
			if _, err := file.Write(buffer[:n]); err != nil {
				return have, false, fmt.Errorf("hub: %s: %w: %w", f.name, errDisk, err)
			}
			have += int64(n)
			progress(f.name, have, max(0, f.size))
		}
		switch {
		case err == io.EOF && (f.size < 0 || have == f.size):
			return have, true, nil
		case err == io.EOF:
			return have, false, fmt.Errorf("the connection ended after %d of %d bytes", have, f.size)
		case err != nil:
			return have, false, err
		}
	}
}
