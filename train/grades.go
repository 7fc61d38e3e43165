package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"onering/reward"
	"onering/train/rundir"
)

// grades remember in the run folder what a reward said whose scores vary, so that a
// run that was killed and resumed goes on with the scores it had: those since the
// last checkpoint are in no other place.
type grades struct {
	file     *rundir.Grades
	known    map[string][]reward.Score
	settings string // those of the reward that decide its scores
}

// A gradesLine is a line of the file.
type gradesLine struct {
	Round   int            `json:"round"`   // rounds that were done then
	Place   string         `json:"place"`   // such as "round 3"
	Problem string         `json:"problem"` // its id
	Key     string         `json:"key"`     // tells the group from all others
	Scores  []reward.Score `json:"scores"`
}

// openGrades opens the file of a run that has done so many rounds. It returns nil if
// equal groups always get equal scores.
func openGrades(c Config, folder *rundir.Folder, round int, log *slog.Logger) (*grades, error) {
	if !reward.Varies(c.Reward.Rule) {
		return nil, nil
	}
	g := &grades{known: map[string][]reward.Score{}, settings: rewardSettings(c)}
	damaged := 0
	var err error
	g.file, err = folder.OpenGrades(func(text []byte) {
		var line gradesLine
		switch err := json.Unmarshal(text, &line); {
		case err != nil:
			damaged++ // the group is graded again
		case line.Round >= round:
			g.known[line.Key] = line.Scores
		}
	})
	if err != nil {
		return nil, err
	}
	if damaged > 0 {
		log.Warn("lines of grades.jsonl cannot be read: their groups are graded again", "lines", damaged)
	}
	if len(g.known) > 0 {
		log.Info("groups that were graded since the checkpoint keep their scores; to have them graded again, remove grades.jsonl", "groups", len(g.known))
	}
	return g, nil
}

// rewardSettings returns the settings that decide the scores of the run's reward, as
// one text.
func rewardSettings(c Config) string {
	values := decisive(c)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(key, "reward.") {
			fmt.Fprintf(&b, "%s=%s\n", key, values[key])
		}
	}
	return b.String()
}

// at returns the journal of a place in the run, such as "round 3", after so many
// rounds; nil if nothing needs to be remembered.
func (g *grades) at(round int, place string) reward.Journal {
	if g == nil {
		return nil
	}
	return gradesOf{g, round, place}
}

func (g *grades) close() {
	if g != nil {
		g.file.Close()
	}
}

// gradesOf are the grades of one place in the run.
type gradesOf struct {
	*grades
	round int
	place string
}

// Find implements reward.Journal. What is known does not change after openGrades: a
// run grades each group once.
func (g gradesOf) Find(task, sample int, group []reward.Sample) []reward.Score {
	scores := g.known[g.key(task, sample, group)]
	if len(scores) != len(group) {
		return nil
	}
	return scores
}

// Keep implements reward.Journal.
func (g gradesOf) Keep(task, sample int, group []reward.Sample, scores []reward.Score) error {
	line, err := json.Marshal(gradesLine{g.round, g.place, group[0].Problem.ID, g.key(task, sample, group), scores})
	if err != nil {
		return fmt.Errorf("train: writing grades: %w", err)
	}
	return g.file.Append(append(line, '\n'))
}

// key is a hash over the place of a group, all that the reward is given, and its
// settings.
func (g gradesOf) key(task, sample int, group []reward.Sample) string {
	h := sha256.New()
	texts(h, g.settings, g.place)
	numbers(h, int32(g.round), int32(task), int32(sample), int32(len(group)))
	p := group[0].Problem
	fields, _ := p.Fields.MarshalJSON() // never fails
	texts(h, p.ID, p.Text, string(fields), group[0].Prompt)
	numbers(h, int32(len(p.Answers)))
	texts(h, p.Answers...)
	for _, s := range group {
		texts(h, s.Response)
		numbers(h, int32(len(s.IDs)))
		numbers(h, s.IDs...)
		if s.Truncated {
			numbers(h, 1)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// texts adds texts to a hash, each with its length.
func texts(h hash.Hash, list ...string) {
	for _, text := range list {
		numbers(h, int32(len(text)))
		h.Write([]byte(text))
	}
}

// numbers adds numbers to a hash.
func numbers(h hash.Hash, list ...int32) {
	binary.Write(h, binary.LittleEndian, list) // to a hash this never fails
}
