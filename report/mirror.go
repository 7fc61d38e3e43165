package report

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"onering/internal/files"
	"onering/internal/strict"
)

// A mirror writes an event file, in the folder tensorboard/ of a run folder, with the
// numbers of the run's metrics.jsonl and a few responses of each round. Tags begin with a
// group, such as in loss/grad_norm, reward/reward and eval/arithmetic/pass@1.
type mirror struct {
	run      string    // the run folder
	path     string    // the event file; "" before the first Update
	offset   int64     // how many bytes of metrics.jsonl are mirrored
	wallTime time.Time // time of the last record
	// stepMetrics are the names of the metrics of steps. A round's means of these are left out.
	stepMetrics map[string]bool
}

// Update appends the records that were added to metrics.jsonl since the last call.
// The first call removes earlier event files and writes all records to a new one,
// because a resumed run may have dropped records and an event file cannot drop them.
//
// The wall time of an event is the time in its record. Records of older runs have no time. Update computes one
// for them: the time when run.toml was written, plus the seconds of the rounds until then.
func (m *mirror) Update() error {
	path := filepath.Join(m.run, "metrics.jsonl")
	info, err := os.Stat(path)
	if err == nil && (m.path == "" || info.Size() < m.offset) {
		err = m.newFile()
	}
	var events []byte
	offset := m.offset
	if err == nil {
		err = eachAddedLine(path, offset, func(line []byte) error {
			offset += int64(len(line))
			if events, err = m.appendLine(events, line); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		})
	}
	if err == nil {
		m.offset, err = offset, appendFile(m.path, events)
	}
	if err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

// newFile removes earlier event files and makes a new one.
func (m *mirror) newFile() error {
	dir := filepath.Join(m.run, "tensorboard")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, path := range files.Glob(dir, "events.out.tfevents.*.onering") {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	m.offset, m.wallTime, m.stepMetrics = 0, time.Now(), map[string]bool{}
	if info, err := os.Stat(filepath.Join(m.run, "run.toml")); err == nil {
		m.wallTime = info.ModTime() // from which records without a time count the seconds
	}
	m.path = filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.onering", time.Now().Unix()))
	return appendFile(m.path, appendRecord(nil, versionEvent(m.wallTime)))
}

// appendLine appends the event for one line of metrics.jsonl, and for a round a few of its responses. It
// appends nothing if the line has no numbers. It sets wallTime to the time of the line.
func (m *mirror) appendLine(events, line []byte) ([]byte, error) {
	var record map[string]any
	if err := strict.JSON(line, &record); err != nil {
		return nil, err
	}
	kind, _ := record["kind"].(string)
	step, _ := record["step"].(float64)
	round, _ := record["round"].(float64)
	var scalars []scalar
	seconds := 0.0
	for _, name := range slices.Sorted(maps.Keys(record)) {
		value, ok := record[name].(float64)
		if !ok || name == "step" || name == "round" {
			continue
		}
		if strings.HasPrefix(name, "seconds/") { // they move the time of a run whose records state none
			seconds += value
		}
		if kind == "step" {
			m.stepMetrics[name] = true
		} else if kind == "round" && m.stepMetrics[name] {
			continue // it is the mean of what the round's steps have stated
		}
		scalars = append(scalars, scalar{tagOf(kind, name), value})
	}
	m.wallTime = m.wallTime.Add(time.Duration(seconds * float64(time.Second)))
	if text, ok := record["time"].(string); ok {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			m.wallTime = at
		}
	}
	var texts []text
	if kind == "round" {
		list, err := readSamples(m.run, int(round), samples)
		if err != nil {
			return nil, err
		}
		for i := range list {
			texts = append(texts, text{fmt.Sprintf("samples/%d", i+1), markdown(&list[i], int(round))})
		}
	}
	if len(scalars)+len(texts) == 0 {
		return events, nil
	}
	return appendRecord(events, event(m.wallTime, int64(step), scalars, texts)), nil
}

// appendFile appends data to a file and creates the file if it does not exist.
func appendFile(path string, data []byte) error {
	f, err := files.Append(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// groups decide which charts TensorBoard shows together: those of tags with the same
// first part. The first entry with a metric's kind and one of its prefixes counts.
var groups = []struct{ kind, group, prefixes string }{
	{"round", "time", "seconds/"},
	{"round", "reward", "reward right_share frac_reward_zero_std groups_kept no_answer_share"},
	{"round", "length", "response_length/ truncated_share"},
	{"round", "policy", "entropy"},
	{"round", "gap", "logp_gap"},
	{"round", "system", "tokens prompt_tokens slot_occupancy"},
	{"step", "time", "seconds/"},
	{"step", "policy", "entropy clip ratio/ log_ratio/ delta/ kl"},
	{"step", "loss", "loss grad_norm learning_rate"},
	{"step", "system", "train_tokens micro_batches"},
	{"step", "p", "ess target_ess"},
}

// tagOf returns the tag of a metric: GROUP/NAME. A metric without an entry keeps its name
// if that has a group already, such as p/mean; otherwise its kind is the group.
func tagOf(kind, name string) string {
	group := ""
	if kind == "eval" {
		group = kind
	}
	for _, g := range groups {
		if g.kind == kind && slices.ContainsFunc(strings.Fields(g.prefixes), func(p string) bool { return strings.HasPrefix(name, p) }) {
			group, name = g.group, strings.TrimPrefix(name, "seconds/") // the group "time" says it already
			break
		}
	}
	switch {
	case group == "" && strings.Contains(name, "/") || strings.HasPrefix(name, group+"/"):
		return name
	case group == "":
		return kind + "/" + name
	}
	return group + "/" + name
}
