package provision

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module copies the library that the Go module onnxruntime_go has for its tests. It is an older version, but a
// machine that has built onering has the module, so neither a network nor a package client is needed.
var module = Source{name: "the Go module cache", build: builds("1.24.1", modulePath+"@"+moduleVersion, moduleBuilds), fetch: moduleFetch}

const modulePath = "github.com/yalue/onnxruntime_go"

// moduleVersion is the version in go.mod; a test compares them.
const moduleVersion = "v1.27.0"

var moduleBuilds = map[string]Build{
	"linux/arm64":   {Member: "test_data/onnxruntime_arm64.so", Sum: "7954e8bdedb497f830c6a679e818d98399b7f4d81ade1126c3e0be74d28111ab"},
	"darwin/arm64":  {Member: "test_data/onnxruntime_arm64.dylib", Sum: "9626bbdd201fbed7e3addcbd9fc7e97ec4954c03afcf40a9883af50498bffb06"},
	"windows/amd64": {Member: "test_data/onnxruntime.dll", Sum: "8a1aad8d59d02a5337d4e3f5bbd1158c3f7bf84fe3b3f0052f957dd3e75a91cb"},
}

// moduleFetch copies the library of a build out of the Go module cache to the file into.
func moduleFetch(ctx context.Context, p *provisioner, b Build, into string) error {
	cache := os.Getenv("GOMODCACHE")
	if cache == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
		if err != nil {
			return fmt.Errorf("go env GOMODCACHE: %w", err)
		}
		cache = strings.TrimSpace(string(out))
	}
	f, err := os.Open(filepath.Join(cache, filepath.FromSlash(b.ref), filepath.FromSlash(b.Member)))
	if err != nil {
		return err
	}
	defer f.Close()
	return writeLibrary(f, into, b.Sum)
}
