package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// digest returns a function that makes, for a file's size, the hash whose sum of the content is the ETag: SHA-256 for
// large files; for others the name that git gives it, SHA-1 of a header with the size and the content. It returns nil
// if the ETag is neither.
func digest(etag string) func(size int64) hash.Hash {
	if _, err := hex.DecodeString(etag); err != nil {
		return nil
	}
	switch len(etag) {
	case 2 * sha256.Size:
		return func(int64) hash.Hash { return sha256.New() }
	case 2 * sha1.Size:
		return func(size int64) hash.Hash {
			h := sha1.New()
			fmt.Fprintf(h, "blob %d\x00", size)
			return h
		}
	}
	return nil
}

// hasChecksum says whether the file at path has the checksum etag.
func hasChecksum(path, etag string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	h := digest(etag)(info.Size())
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	return strings.EqualFold(hex.EncodeToString(h.Sum(nil)), etag), nil
}
