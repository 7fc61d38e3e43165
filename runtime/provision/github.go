package provision

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"onering/internal/files"
	"onering/internal/remote"
	"onering/internal/strict"
)

// github downloads the archive of ONNX Runtime's own release, for machines without a package client. The release
// states the archive's SHA-256. The cache stores the first stated checksum; if the release later states another one
// for the same archive, the archive is refused.
var github = Source{name: "GitHub", build: builds(pinned, "", releaseBuilds), fetch: githubFetch}

const releasePage = "https://github.com/microsoft/onnxruntime/releases/tag/v" + pinned

// releaseAPI is where GitHub describes the release. Tests replace it with the address of their own server.
var releaseAPI = "https://api.github.com/repos/microsoft/onnxruntime/releases/tags/v" + pinned

var releaseBuilds = map[string]Build{
	"linux/amd64":   {ref: "onnxruntime-linux-x64-" + pinned + ".tgz", Member: "onnxruntime-linux-x64-" + pinned + "/lib/libonnxruntime.so." + pinned},
	"linux/arm64":   {ref: "onnxruntime-linux-aarch64-" + pinned + ".tgz", Member: "onnxruntime-linux-aarch64-" + pinned + "/lib/libonnxruntime.so." + pinned},
	"darwin/arm64":  {ref: "onnxruntime-osx-arm64-" + pinned + ".tgz", Member: "onnxruntime-osx-arm64-" + pinned + "/lib/libonnxruntime." + pinned + ".dylib"},
	"windows/amd64": {ref: "onnxruntime-win-x64-" + pinned + ".zip", Member: "onnxruntime-win-x64-" + pinned + "/lib/onnxruntime.dll"},
	"windows/arm64": {ref: "onnxruntime-win-arm64-" + pinned + ".zip", Member: "onnxruntime-win-arm64-" + pinned + "/lib/onnxruntime.dll"},
}

// An asset is one file of a release, as GitHub's API describes it.
type asset struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"` // "sha256:" and the hexadecimal digits
	URL    string `json:"browser_download_url"`
}

// githubFetch downloads the release's archive of a build, checks its digest, and extracts the library to the
// file into.
func githubFetch(ctx context.Context, p *provisioner, b Build, into string) error {
	a, err := describe(ctx, b.ref)
	if err != nil {
		return err
	}
	if err := p.remember(a); err != nil {
		return err
	}
	archive := filepath.Join(p.staging, b.ref)
	if err := p.download(ctx, a, b, archive); err != nil {
		return err
	}
	return extract(archive, b.Member, into, b.Sum)
}

// httpClient gives up on a server that does not answer. A download may take as long as it needs.
var httpClient = &http.Client{Transport: func() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = 30 * time.Second
	return t
}()}

// get sends a GET request, and returns an error for any status but 200. The caller closes the body.
func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "onering")
	r, err := httpClient.Do(req)
	if err != nil {
		return nil, remote.Plain(err)
	}
	if r.StatusCode != http.StatusOK {
		r.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, r.Status)
	}
	return r, nil
}

// describe returns how the release describes its file called name: size, digest and URL.
func describe(ctx context.Context, name string) (asset, error) {
	r, err := get(ctx, releaseAPI)
	if err != nil {
		return asset{}, err
	}
	defer r.Body.Close()
	var release struct {
		Assets []asset `json:"assets"`
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err == nil {
		err = strict.JSON(text, &release)
	}
	if err != nil {
		return asset{}, fmt.Errorf("%s: %w", releaseAPI, err)
	}
	for _, a := range release.Assets {
		if a.Name != name {
			continue
		}
		if sum, ok := strings.CutPrefix(a.Digest, "sha256:"); !ok || len(sum) != 2*sha256.Size {
			return asset{}, fmt.Errorf("the release states no SHA-256 of %s, so it is not used", name)
		}
		return a, nil
	}
	return asset{}, fmt.Errorf("the release has no %s", name)
}

// remember stores the digest of a in the cache, and returns an error if another one is stored there.
func (p *provisioner) remember(a asset) error {
	path := filepath.Join(p.cache, "github.json")
	seen := map[string]string{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = strict.JSON(text, &seen)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the digests seen before: %w", err)
	}
	if was, ok := seen[a.Name]; ok {
		if was != a.Digest {
			return fmt.Errorf("the release now states %s of %s, but before it was %s (%s): it is not used", a.Digest, a.Name, was, path)
		}
		return nil
	}
	seen[a.Name] = a.Digest
	if text, err = json.MarshalIndent(seen, "", "  "); err != nil {
		return err
	}
	return files.WriteFile(path, files.Content(append(text, '\n')))
}

// download writes a to the file at path and checks its digest.
func (p *provisioner) download(ctx context.Context, a asset, b Build, path string) error {
	r, err := get(ctx, a.URL)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body := files.Counted(r.Body, 0, func(n int64) {
		p.progress(fmt.Sprintf("ONNX Runtime %s from GitHub", b.version), n, a.Size)
	})
	got, err := copyLibrary(body, path)
	if err == nil && "sha256:"+got != a.Digest {
		err = fmt.Errorf("%s: what was downloaded has sha256:%s, the release states %s: it is not used", a.Name, got, a.Digest)
	}
	return err
}
