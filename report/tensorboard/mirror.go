package tensorboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Mirror keeps the event file of a run folder, in tensorboard/, as far as its
// metrics.jsonl goes. Tags begin with the kind of the record: step/grad_norm,
// round/reward, eval/arithmetic/pass@1.
type Mirror struct {
	run  string
	path string    // of the event file
	at   int64     // bytes of metrics.jsonl that are mirrored
	wall time.Time // of the last record
}

// NewMirror returns the mirror of a run folder. Nothing is written yet.
func NewMirror(run string) *Mirror { return &Mirror{run: run} }

// Update appends what metrics.jsonl has grown by. The first call writes all of
// it anew in place of earlier event files: a resumed run drops records, which an
// event file cannot.
//
// The wall time of an event is its record's. Records of older runs have no time of
// day: theirs is that of the beginning of the run, when run.toml was written, plus
// the seconds of the rounds before.
func (m *Mirror) Update() error {
	if err := m.update(); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

func (m *Mirror) update() error {
	in, err := os.Open(filepath.Join(m.run, "metrics.jsonl"))
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if m.path == "" || size < m.at {
		if err := m.begin(); err != nil {
			return err
		}
	}
	data := make([]byte, size-m.at)
	if _, err := in.ReadAt(data, m.at); err != nil {
		return err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1 // a line that is being written waits
	var events []byte
	for line := range bytes.Lines(data[:whole]) {
		if events, err = m.appendLine(events, line); err != nil {
			return fmt.Errorf("%s: %w", in.Name(), err)
		}
	}
	m.at += int64(whole)
	return appendFile(m.path, events)
}

// begin makes a new event file.
func (m *Mirror) begin() error {
	dir := filepath.Join(m.run, "tensorboard")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*.onering"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	m.at, m.wall = 0, time.Now()
	if info, err := os.Stat(filepath.Join(m.run, "run.toml")); err == nil {
		m.wall = info.ModTime()
	}
	m.path = filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.onering", time.Now().Unix()))
	return appendFile(m.path, appendRecord(nil, versionEvent(m.wall)))
}

// appendLine appends the event of one record. Records of no number have none.
func (m *Mirror) appendLine(events, line []byte) ([]byte, error) {
	var record map[string]any
	if err := json.Unmarshal(line, &record); err != nil {
		return nil, err
	}
	kind, _ := record["kind"].(string)
	step, _ := record["step"].(float64)
	var scalars []Scalar
	seconds := 0.0
	for _, name := range slices.Sorted(maps.Keys(record)) {
		value, ok := record[name].(float64)
		if !ok || name == "step" || name == "round" {
			continue
		}
		if strings.HasPrefix(name, "seconds/") {
			seconds += value
		}
		tag := name
		if !strings.HasPrefix(name, kind+"/") {
			tag = kind + "/" + name
		}
		scalars = append(scalars, Scalar{tag, value})
	}
	m.wall = m.wall.Add(time.Duration(seconds * float64(time.Second)))
	if text, ok := record["time"].(string); ok {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			m.wall = at
		}
	}
	if len(scalars) == 0 {
		return events, nil
	}
	return appendRecord(events, scalarEvent(m.wall, int64(step), scalars)), nil
}

func appendFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
