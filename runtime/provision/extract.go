package provision

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxLibrary bounds a library file; the largest known, the CUDA provider, has 284 MB.
const maxLibrary = 1 << 30

// extract writes one member of an archive (.whl, .zip or .tgz) to the file into and checks its SHA-256 if sum is not
// empty. It writes no other file, whatever names the archive has.
func extract(archive, member, into, sum string) error {
	write := func(r io.Reader) error { return writeLibrary(r, into, sum) }
	var err error
	if ext := filepath.Ext(archive); ext == ".whl" || ext == ".zip" {
		err = inZip(archive, member, write)
	} else {
		err = inTar(archive, member, write)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", filepath.Base(archive), member, err)
	}
	return nil
}

var errNoMember = errors.New("not in the archive")

// inZip opens a zip archive and gives the content of one member to write.
func inZip(archive, member string, write func(io.Reader) error) error {
	z, err := zip.OpenReader(archive)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		if f.Name == member && f.Mode().IsRegular() {
			r, err := f.Open()
			if err != nil {
				return err
			}
			defer r.Close()
			return write(r)
		}
	}
	return errNoMember
}

// inTar opens a .tgz archive and gives the content of one member to write.
func inTar(archive, member string, write func(io.Reader) error) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for t := tar.NewReader(gz); ; {
		h, err := t.Next()
		if err == io.EOF {
			return errNoMember
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return err
		}
		if h.Typeflag == tar.TypeReg && path.Clean(h.Name) == member {
			return write(t)
		}
	}
}

// writeLibrary writes r to a new file and checks its SHA-256 if sum is not empty. If
// anything is wrong it removes the file.
func writeLibrary(r io.Reader, into, sum string) error {
	got, err := copyLibrary(r, into)
	if err == nil && sum != "" && !strings.EqualFold(got, sum) {
		os.Remove(into)
		err = fmt.Errorf("its SHA-256 is %s, not the expected %s: it is not used", got, sum)
	}
	return err
}

// copyLibrary writes r to a new file, syncs it to the disk and returns its SHA-256. If
// anything is wrong it removes the file.
func copyLibrary(r io.Reader, into string) (sum string, err error) {
	f, err := os.OpenFile(into, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			os.Remove(into)
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, maxLibrary+1))
	if err == nil && n > maxLibrary {
		err = fmt.Errorf("larger than %d bytes", maxLibrary)
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), f.Sync()
}
