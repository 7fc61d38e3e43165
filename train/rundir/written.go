package rundir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/strict"
)

// writtenFile of a checkpoint states what the run had written into its folder by then.
// Checkpoints of older versions lack it.
const writtenFile = "written.json"

// maxWritten bounds how much of the file is read, in bytes: a round has about 130.
const maxWritten = 256 << 20

// written has the files of a run at the time of a checkpoint, by their paths in the folder with slashes.
type written map[string]extent

// An extent is the beginning of a file.
type extent struct {
	Bytes int64  `json:"bytes"`
	Sum   string `json:"sha256"`
}

// grows says whether a run appends to a file of its folder; it writes the others once.
func grows(name string) bool { return name == metricsFile || name == gradesFile || name == logFile }

// readWritten reads what a checkpoint states about the files of its run; nil if it states nothing.
func readWritten(checkpoint string) (w written, err error) {
	path := filepath.Join(checkpoint, stateDir, writtenFile)
	text, err := files.ReadIn(path, maxWritten)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = strict.JSON(text, &w)
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if err == nil && !filepath.IsLocal(name) {
			err = fmt.Errorf("%q is not a file of a run", name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("train: %s: %w", path, err)
	}
	return w, nil
}

// sizes returns how much of the growing files belongs to a checkpoint that is written now, and run.toml with its sum.
func (f *Folder) sizes() written {
	w := written{metricsFile: {Bytes: f.size}}
	if f.config != nil {
		w[configFile] = extent{int64(len(f.config)), fmt.Sprintf("%x", sha256.Sum256(f.config))}
	}
	for _, name := range []string{gradesFile, logFile} {
		if info, err := os.Stat(filepath.Join(f.Dir, name)); err == nil {
			w[name] = extent{Bytes: info.Size()}
		}
	}
	return w
}

// addSums completes the files and sizes of w with SHA-256 sums, and adds the files of finished rounds, of which it
// reads only those that f.known, of the checkpoint before, lacks; w becomes f.known. A file that cannot be read is left
// out: the checkpoint is worth more than its sum.
func (f *Folder) addSums(w written, s State, log *slog.Logger) written {
	for _, dir := range []string{rolloutsDir, evaluationsDir} {
		for _, path := range files.Glob(f.Dir, dir+"/round-*.jsonl") {
			n, name := 0, dir+"/"+filepath.Base(path)
			fmt.Sscanf(filepath.Base(path), "round-%d", &n)
			// Round s.Round is the last finished one; its evaluation follows, and inside the next round is done.
			if n < s.Round || n == s.Round && (dir == rolloutsDir || s.Evaluated || s.Inside) {
				w[name] = f.known[name] // without a sum if it is new
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		x, err := w[name], error(nil)
		if x.Sum == "" {
			x, err = extentOf(f.Dir, name, x.Bytes)
		}
		w[name] = x
		if err != nil {
			delete(w, name)
			log.Warn("the checkpoint states no sum of a file of the run", "file", name, "reason", err)
		}
	}
	f.known = w
	return w
}

// extentOf returns a whole file of a run folder, or the first n bytes of one that grows.
func extentOf(run, name string, n int64) (x extent, err error) {
	in, err := files.OpenIn(filepath.Join(run, filepath.FromSlash(name)))
	if err != nil {
		return x, err
	}
	defer in.Close()
	h, from := sha256.New(), io.Reader(in)
	if grows(name) {
		from = io.LimitReader(in, n)
	}
	x.Bytes, err = io.Copy(h, from)
	x.Sum = fmt.Sprintf("%x", h.Sum(nil))
	return x, err
}

// compare returns an error unless a file is as a checkpoint counts it. An extent without a sum has the size alone.
func compare(run, name string, want extent) error {
	is, err := extentOf(run, name, want.Bytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("it is missing, and the newest checkpoint counts it")
	case err != nil:
		return err
	case is.Bytes < want.Bytes:
		return fmt.Errorf("%d bytes are missing that the newest checkpoint counts", want.Bytes-is.Bytes)
	case want.Sum != "" && is != want:
		return fmt.Errorf("it was changed: the newest checkpoint counts %d bytes with the SHA-256 %.16s..., and there are %d with %.16s",
			want.Bytes, want.Sum, is.Bytes, is.Sum)
	}
	return nil
}

// Remember takes over what a checkpoint, from which the run goes on, states about the files of the run, and logs which
// of them are otherwise by now. Of the files of rounds, which are below a folder, it only counts those that are gone.
// It leaves metrics.jsonl to Rewind.
func (f *Folder) Remember(checkpoint string, log *slog.Logger) (err error) {
	f.known, err = readWritten(checkpoint)
	gone := 0
	for _, name := range slices.Sorted(maps.Keys(f.known)) {
		round := strings.Contains(name, "/")
		if round && !exists(filepath.Join(f.Dir, name)) {
			gone++
		}
		if name == metricsFile || round {
			continue
		}
		if err := compare(f.Dir, name, f.known[name]); err != nil {
			log.Warn("the run folder is not as the checkpoint left it; onering check tells more", "file", name, "reason", err)
		}
	}
	if gone > 0 {
		log.Warn("rollouts or evaluations that the checkpoint counts are gone; onering check names them", "files", gone)
	}
	return err
}

// Reconfigured says whether the run goes on with another run.toml than the checkpoint counts.
func (f *Folder) Reconfigured() bool {
	return f != nil && f.known != nil && f.sizes()[configFile] != f.known[configFile]
}
