package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
)

// Environment variables that say where the library is.
const (
	envLibrary = "ONNXRUNTIME_LIB" // a library, or the folder that holds it
	envCache   = "ONERING_CACHE"   // in place of "onering" in the user's cache folder
	envOffline = "ONERING_OFFLINE" // when not empty: never fetch a library
)

// A place is where a library was found, or why one that was seen is not used.
type place struct {
	path string
	how  string // "--library", "ONNXRUNTIME_LIB", "cache", "system", or the source it was just fetched from
}

// A kind is what the library is to have been built with.
type kind struct {
	sources []source
	with    []string // files that must lie beside the library
}

var (
	cpuKind  = kind{sources: sources}
	cudaKind = kind{sources: cudaSources, with: []string{cudaProvider, "libonnxruntime_providers_shared.so"}}
)

// lacks returns the first file that k needs and that does not lie beside the
// library at path, or "".
func (k kind) lacks(path string) string {
	for _, name := range k.with {
		if besideLibrary(path, name) == "" {
			return name
		}
	}
	return ""
}

// besideLibrary returns the path of the file called name in the library's own
// folder, links followed as the loader does, or "".
func besideLibrary(library, name string) string {
	dirs := []string{filepath.Dir(library)}
	if real, err := filepath.EvalSymlinks(library); err == nil {
		dirs = append(dirs, filepath.Dir(real))
	}
	return firstWith(dirs, name)
}

// find looks for the library in the order of the package's promise: the path
// that was asked for, ONNXRUNTIME_LIB, the cache, the system; and fetches one
// into the cache where there is none. A path that was asked for is never
// replaced by another.
func find(ctx context.Context, o Options, k kind) (place, error) {
	at, err := look(o, k)
	if err != nil || at.path != "" {
		return at, err
	}
	p, err := newProvisioner(o, k)
	if err != nil {
		return place{}, err
	}
	return p.provision(ctx)
}

// look is find without fetching: no path where there is no library.
func look(o Options, k kind) (place, error) {
	goos, goarch := goruntime.GOOS, goruntime.GOARCH
	for _, asked := range []place{{o.Library, "--library"}, {os.Getenv(envLibrary), envLibrary}} {
		if asked.path == "" {
			continue
		}
		path, err := named(asked.path, goos)
		if err == nil {
			err = inspect(path, goos, goarch)
		}
		if err == nil && k.lacks(path) != "" {
			err = fmt.Errorf("%s does not lie beside %q: it is not a build with CUDA, such as that of pip's %s", k.lacks(path), path, cudaRef)
		}
		if err != nil {
			by := asked.how
			if by == "--library" {
				by += " or runtime.library"
			}
			return place{}, fmt.Errorf("runtime: the library that %s names: %w; name libonnxruntime or its folder, or leave it out to have one looked for", by, err)
		}
		return place{path, asked.how}, nil
	}
	cache, err := cacheDir(o)
	if err != nil {
		return place{}, err
	}
	if path := cached(cache, goos, goarch, k); path != "" {
		if err := inspect(path, goos, goarch); err != nil {
			return place{}, fmt.Errorf("runtime: the cached library: %w; remove it to have it fetched again", err)
		}
		return place{path, "cache"}, nil
	}
	for _, dir := range systemDirs(goos, goarch) {
		path, err := named(dir, goos)
		if err != nil || tooOld(path) || k.lacks(path) != "" {
			continue
		}
		if inspect(path, goos, goarch) == nil {
			return place{path, "system"}, nil
		}
	}
	return place{}, nil
}

// libraryName is the library's file name without a version.
func libraryName(goos string) string {
	switch goos {
	case "windows":
		return "onnxruntime.dll"
	case "darwin":
		return "libonnxruntime.dylib"
	}
	return "libonnxruntime.so"
}

// named returns the absolute path of the library that path is, or that lies in
// the folder that path is.
func named(path, goos string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return path, nil
	}
	plain := filepath.Join(path, libraryName(goos))
	if _, err := os.Stat(plain); err == nil {
		return plain, nil
	}
	// Only versioned names: libonnxruntime.so.1.31.1, libonnxruntime.1.31.1.dylib.
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	best := ""
	for _, e := range entries {
		if name := e.Name(); versioned[goos] != nil && versioned[goos].MatchString(name) && older(best, name) {
			best = name
		}
	}
	if best == "" {
		return "", fmt.Errorf("no %s in %q: %w", libraryName(goos), path, fs.ErrNotExist)
	}
	return filepath.Join(path, best), nil
}

var (
	versioned = map[string]*regexp.Regexp{
		"linux":  regexp.MustCompile(`^libonnxruntime\.so\.[0-9.]+$`),
		"darwin": regexp.MustCompile(`^libonnxruntime\.[0-9.]+\.dylib$`),
	}
	numbers = regexp.MustCompile(`[0-9]+`)
)

// older tells whether the version in file name a is below that in b.
func older(a, b string) bool {
	ints := func(s string) (n []int) {
		for _, d := range numbers.FindAllString(s, -1) {
			i, _ := strconv.Atoi(d)
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(ints(a), ints(b)) < 0
}

// tooOld tells whether the name of the file behind path states a version that
// is too old. Nothing is known of a file whose name states none.
func tooOld(path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	n := numbers.FindAllString(filepath.Base(path), -1)
	if len(n) < 2 {
		return false
	}
	minor, err := strconv.Atoi(n[1])
	return err == nil && (n[0] != "1" || minor < minAPI)
}

// cacheDir is the folder in the user's cache that libraries are kept in.
func cacheDir(o Options) (string, error) {
	dir := o.Cache
	if dir == "" {
		dir = os.Getenv(envCache)
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("runtime: no cache folder for the ONNX Runtime library: %w; set %s", err, envCache)
		}
		dir = filepath.Join(user, "onering")
	}
	dir, err := filepath.Abs(dir)
	return filepath.Join(dir, "onnxruntime"), err
}

// cached returns the path of a library in the cache, or "": one that the user
// put there, else the one that was fetched by the first of k's sources.
func cached(cache, goos, goarch string, k kind) string {
	paths := []string{filepath.Join(cache, libraryName(goos))}
	for _, s := range k.sources {
		if b, ok := s.build(goos, goarch); ok {
			paths = append(paths, b.path(cache, goos, goarch))
		}
	}
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) && k.lacks(p) == "" {
			return p
		}
	}
	return ""
}

// systemDirs are the folders where an installed library may be.
func systemDirs(goos, goarch string) []string {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(exe))
	}
	switch goos {
	case "windows":
		// Windows itself has an onnxruntime.dll that is far too old.
		root := strings.ToLower(os.Getenv("SystemRoot"))
		for _, d := range filepath.SplitList(os.Getenv("PATH")) {
			if root == "" || !strings.HasPrefix(strings.ToLower(d), root) {
				dirs = append(dirs, d)
			}
		}
	case "darwin":
		dirs = append(dirs, filepath.SplitList(os.Getenv("DYLD_LIBRARY_PATH"))...)
		dirs = append(dirs, "/opt/homebrew/lib", "/usr/local/lib")
	default:
		dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
		triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[goarch]
		dirs = append(dirs, "/usr/local/lib", "/usr/local/lib64", "/usr/lib/"+triplet, "/usr/lib64", "/usr/lib")
	}
	return dirs
}
