package hub

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A kind of repository.
type kind struct {
	plural string // name in folders and in addresses of the API
	word   string // name in messages
	prefix string // beginning of addresses outside of the API, may be empty
}

var (
	model   = kind{"models", "model", ""}
	dataset = kind{"datasets", "data set", "datasets"}
)

// A repo is a repository at a revision, and the part of it to download.
type repo struct {
	kind
	id       string // ORG/NAME, or NAME for old repositories
	revision string
	path     string // a path in a data set; "" for all of it

	noWeights bool                   // leave out the weights of a model
	isData    func(name string) bool // says by its name whether a file of a data set may have rows
}

// address returns the parts of the repository's address below the endpoint.
func (r repo) address() []string {
	return strings.Split(strings.TrimPrefix(r.prefix+"/"+r.id, "/"), "/")
}

// folder returns the name of the repository's folder in the cache.
func (r repo) folder() string { return r.plural + "--" + strings.ReplaceAll(r.id, "/", "--") }

var (
	namePart   = regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?$`)
	commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

func isCommit(revision string) bool { return commitHash.MatchString(revision) }

// parseName reads a name; ok says whether it is a name on the hub. Without "hf:" only a model's can be one, and only if
// there is neither a file or folder of that name nor one called ORG here. With "hf:" another name is an error.
func parseName(name string, k kind) (r repo, ok bool, err error) {
	text, explicit := strings.CutPrefix(name, "hf:")
	if !explicit && (k == dataset || exists(name)) {
		return r, false, nil
	}
	if explicit && k == dataset {
		text = strings.TrimPrefix(text, "datasets/")
	}
	// The parts of ORG/NAME@REVISION/PATH. A revision with a slash can only be
	// given in Options.Revision.
	parts := strings.SplitN(text, "/", 3)
	switch {
	case len(parts) < 2 && explicit:
		return r, false, fmt.Errorf("hub: %q: write hf:ORG/NAME", name)
	case len(parts) < 2:
		return r, false, nil
	}
	last, revision, at := strings.Cut(parts[1], "@")
	r = repo{kind: k, id: parts[0] + "/" + last, revision: "main"}
	if at {
		r.revision = revision
	}
	if len(parts) == 3 {
		r.path = parts[2]
	}
	valid := namePart.MatchString(parts[0]) && namePart.MatchString(last) && len(r.id) <= 96 &&
		!strings.Contains(r.id, "--") && !strings.Contains(r.id, "..") && !strings.HasSuffix(r.id, ".git") &&
		(len(parts) == 2 || k == dataset && isRelative(r.path)) && (!at || revision != "")
	switch {
	case valid && (explicit || !exists(parts[0])):
		return r, true, nil
	case explicit:
		return r, false, fmt.Errorf("hub: %q is not a name on the hub: write hf:ORG/NAME or hf:ORG/NAME@REVISION", name)
	}
	return r, false, nil
}

// checkRevision refuses a revision whose file would be outside of the folder refs.
func checkRevision(revision string) error {
	if !isRelative(revision) {
		return fmt.Errorf("hub: revision %q is not a branch, tag or commit", revision)
	}
	return nil
}

// isRelative says whether a path with slashes is inside the folder to which it is relative, on any system.
func isRelative(path string) bool {
	if path == "" || strings.ContainsAny(path, "\\:\x00") {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
