package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"onering/internal/files"
)

// A Kind is a kind of library with the provider of a device in addition to the CPU's. The zero
// Kind is for the CPU alone, and comes from package clients, Go's module cache or GitHub.
type Kind struct {
	Sources []Source // the first is the best
	With    []string // files that must lie beside the library
	Name    string   // words for messages, such as "with CUDA"
	Ref     string   // pip's name of the package
}

// sources returns the sources of the kind's library.
func (k Kind) sources() []Source {
	if k.Sources == nil {
		return sources
	}
	return k.Sources
}

// Lacks returns the first file that k needs and that is missing beside the library at path, or "".
func (k Kind) Lacks(path string) string {
	for _, name := range k.With {
		if Beside(path, name) == "" {
			return name
		}
	}
	return ""
}

// Beside returns the path of the file called name in the library's folder,
// or "". As the loader does, it follows links.
func Beside(library, name string) string {
	dirs := []string{filepath.Dir(library)}
	if real, err := filepath.EvalSymlinks(library); err == nil {
		dirs = append(dirs, filepath.Dir(real))
	}
	return FirstWith(dirs, name)
}

// FirstWith returns the path of the file called name in the first of dirs that has one, or "".
func FirstWith(dirs []string, name string) string {
	for _, d := range dirs {
		path := filepath.Join(d, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// Find looks for a library of a kind: the path in o.Library, then that in ONNXRUNTIME_LIB, then the cache, then the
// system's folders. If there is none it fetches one into the cache. A library that was named is never replaced by
// another one: if it cannot be used, that is an error.
func Find(ctx context.Context, o Options, k Kind) (Location, error) {
	at, err := Look(o, k)
	if err != nil || at.Path != "" {
		return at, err
	}
	p, err := newProvisioner(o, k)
	if err != nil {
		return Location{}, err
	}
	return p.provision(ctx)
}

// Look is Find without fetching: the Location is empty if there is no library.
func Look(o Options, k Kind) (Location, error) {
	goos, goarch := runtime.GOOS, runtime.GOARCH
	for _, asked := range []Location{{o.Library, "--library"}, {os.Getenv(LibraryVariable), LibraryVariable}} {
		if asked.Path == "" {
			continue
		}
		path, err := libraryAt(asked.Path, goos)
		if err == nil {
			err = inspect(path, goos, goarch)
		}
		if lacks := k.Lacks(path); err == nil && lacks != "" {
			err = fmt.Errorf("%s does not lie beside %q: it is not a build %s, such as that of pip's %s", lacks, path, k.Name, k.Ref)
		}
		if err != nil {
			by := asked.Found
			if by == "--library" {
				by += " or runtime.library"
			}
			return Location{}, fmt.Errorf("provision: the library that %s names: %w; name libonnxruntime or its folder, or leave it out to have one looked for", by, err)
		}
		return Location{path, asked.Found}, nil
	}
	cache, err := cacheDir(o)
	if err != nil {
		return Location{}, err
	}
	if path := cached(cache, goos, goarch, k); path != "" {
		if err := inspect(path, goos, goarch); err != nil {
			return Location{}, fmt.Errorf("provision: the cached library: %w; remove it to have it fetched again", err)
		}
		return Location{path, "cache"}, nil
	}
	for _, dir := range systemDirs(goos, goarch) {
		path, err := libraryAt(dir, goos)
		if err != nil || tooOld(path) || k.Lacks(path) != "" {
			continue
		}
		if inspect(path, goos, goarch) == nil {
			return Location{path, "system"}, nil
		}
	}
	return Location{}, nil
}

// libraryName returns the library's file name without a version.
func libraryName(goos string) string {
	return cmp.Or(map[string]string{"windows": "onnxruntime.dll", "darwin": "libonnxruntime.dylib"}[goos], "libonnxruntime.so")
}

// libraryAt returns the absolute path of the library at path, which may also be the
// folder that holds the library: then it is the file without a version, or the one of the newest.
func libraryAt(path, goos string) (string, error) {
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

// older reports whether the version in file name a is below that in b.
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

// tooOld reports whether the file name behind path states a version that is too
// old. A file name without a version is not too old.
func tooOld(path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	n := numbers.FindAllString(filepath.Base(path), -1)
	if len(n) < 2 {
		return false
	}
	minor, err := strconv.Atoi(n[1])
	return err == nil && (n[0] != "1" || minor < MinAPI)
}

// cacheDir returns the folder in which libraries are stored.
func cacheDir(o Options) (string, error) {
	dir := cmp.Or(o.Cache, os.Getenv(envCache))
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("provision: no cache folder for the ONNX Runtime library: %w; set %s", err, envCache)
		}
		dir = filepath.Join(user, "onering")
	}
	dir, err := filepath.Abs(dir)
	return filepath.Join(dir, "onnxruntime"), err
}

// cached returns the path of a library in the cache, or "": one that the user put there,
// else one from the first of k's sources, else the newest one for the CPU that was fetched for
// another version of onering, which all graphs run on as well.
func cached(cache, goos, goarch string, k Kind) string {
	paths := []string{filepath.Join(cache, libraryName(goos))}
	for _, s := range k.sources() {
		if b, ok := s.build(goos, goarch); ok {
			paths = append(paths, b.path(cache, goos, goarch))
		}
	}
	if k.Sources == nil { // the kind for the CPU
		newest := ""
		entries, _ := os.ReadDir(cache) // without a cache there is none
		for _, e := range entries {
			version, ok := strings.CutSuffix(e.Name(), "-"+goos+"-"+goarch)
			if ok && !strings.Contains(version, "-") && !tooOld(filepath.Join(cache, e.Name())) && older(newest, version) {
				newest = version
			}
		}
		paths = append(paths, Build{version: newest}.path(cache, goos, goarch)) // of no file if newest is empty
	}
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) && k.Lacks(p) == "" {
			return p
		}
	}
	return ""
}

// pythonDirs returns the folder of the pinned onnxruntime in the Python environment into whose
// scripts pip has put the program: no more than one.
func pythonDirs(program string) (dirs []string) {
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	root := filepath.Dir(filepath.Dir(program))
	for _, site := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages"} {
		for _, info := range files.Glob(root, site+"/onnxruntime-"+pinned+".dist-info") {
			dirs = append(dirs, filepath.Join(filepath.Dir(info), "onnxruntime", "capi"))
		}
	}
	return dirs[:min(1, len(dirs))]
}

// systemDirs returns the folders where an installed library may be.
func systemDirs(goos, goarch string) []string {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		dirs = append(append(dirs, filepath.Dir(exe)), pythonDirs(exe)...)
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
