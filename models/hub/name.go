package hub

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A kind of repository.
type kind struct {
	plural string // in the names of folders and the API's addresses
	word   string // in messages
	prefix string // of its other addresses, "" for none
}

var (
	model   = kind{"models", "model", ""}
	dataset = kind{"datasets", "data set", "datasets"}
)

// A repo is a repository at a revision, and the part of it that is wanted.
type repo struct {
	kind
	id       string // ORG/NAME, or NAME for old ones
	revision string
	path     string // within a data set; "" for all of it

	noWeights bool // of a model
}

// address is the parts of its address below the endpoint.
func (r repo) address() []string {
	parts := strings.Split(r.id, "/")
	if r.prefix != "" {
		parts = append([]string{r.prefix}, parts...)
	}
	return parts
}

// folder is the name of the repository's folder in the cache.
func (r repo) folder() string { return r.plural + "--" + strings.ReplaceAll(r.id, "/", "--") }

var (
	namePart   = regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?$`)
	commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

func isCommit(revision string) bool { return commitHash.MatchString(revision) }

// parse says whether a name is one on the hub.
func parse(name string, k kind) (r repo, ok bool, err error) {
	text, explicit := strings.CutPrefix(name, "hf:")
	if !explicit && (k == dataset || exists(name)) {
		return r, false, nil
	}
	if explicit && k == dataset {
		text = strings.TrimPrefix(text, "datasets/")
	}
	// The parts of ORG/NAME@REVISION/PATH. A revision has no slash here; for
	// one that has there is Options.Revision.
	parts := strings.SplitN(text, "/", 3)
	if len(parts) < 2 {
		if explicit {
			return r, false, fmt.Errorf("hub: %q: write hf:ORG/NAME", name)
		}
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
		return r, false, fmt.Errorf("hub: %q is no name on the hub: it is hf:ORG/NAME, with @REVISION or not", name)
	}
	return r, false, nil
}

// checkRevision refuses what would leave the folder of refs.
func checkRevision(revision string) error {
	if !isRelative(revision) {
		return fmt.Errorf("hub: revision %q is no branch, tag or commit", revision)
	}
	return nil
}

// isRelative says whether a path with slashes stays within the folder it is
// joined to, on any system.
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
