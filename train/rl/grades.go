package rl

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"slices"
	"sync"

	"onering/data"
	"onering/internal/strict"
	"onering/reward"
	"onering/train/ranks"
	"onering/train/rundir"
)

// A book records in the run folder the scores of a reward that varies, and the answers of an environment, so that a run
// that was killed and resumed gets the same: nothing else holds those since the last checkpoint.
type book struct {
	file     *rundir.Grades // nil on all ranks but the first
	ranks    *ranks.Group
	mu       sync.Mutex
	unsent   []byte           // lines that the first rank does not have yet
	recorded map[string]entry // by key: what was recorded before openBook and is needed again
	settings string           // the settings of reward and environment that decide their answers
}

// An entry is a line of the file.
type entry struct {
	Round   int            `json:"round"`             // number of rounds that were finished then
	Place   string         `json:"place"`             // for example "round 3"
	Problem string         `json:"problem,omitempty"` // id of the problem
	Key     string         `json:"key"`               // identifies the group or the turn
	Scores  []reward.Score `json:"scores,omitempty"`
	// Answer is the environment's answer to a turn.
	Answer json.RawMessage `json:"answer,omitempty"`
}

// openBook opens the book of a run that has done so many rounds, and reads what was recorded since
// then, on all ranks. settings decide the answers of reward and environment, as one text: if they
// changed, both are asked again. Only the first rank has the folder.
func openBook(folder *rundir.Folder, group *ranks.Group, settings string, round int, log *slog.Logger) (*book, error) {
	g := &book{recorded: map[string]entry{}, settings: settings, ranks: group}
	text, err := ranks.FromFirst(group, func() (text []byte, err error) {
		g.file, err = folder.OpenGrades(func(line []byte) { text = append(text, line...) })
		return text, err
	})
	if err != nil {
		g.close()
		return nil, err
	}
	damaged := 0
	for one := range bytes.Lines(text) {
		var line entry
		switch err := strict.JSON(one, &line); {
		case err != nil:
			damaged++ // the group is graded again
		case line.Round >= round: // earlier rounds are in the checkpoint
			g.recorded[line.Key] = line
		}
	}
	if damaged > 0 {
		log.Warn("lines of grades.jsonl cannot be read: their groups are graded again", "lines", damaged)
	}
	if len(g.recorded) > 0 {
		log.Info("groups that were graded since the checkpoint keep their scores; to have them graded again, remove grades.jsonl", "groups", len(g.recorded))
	}
	return g, nil
}

// journal returns what records the answers at a place in the run, such as "round 3", after so many finished rounds; nil
// without a book.
func (g *book) journal(round int, place string) reward.Journal {
	if g == nil {
		return nil
	}
	return &page{g, round, place}
}

// close closes the book, if there is one.
func (g *book) close() {
	if g != nil && g.file != nil {
		g.file.Close()
	}
}

// exchange makes the first rank write the grades of the others since the last exchange:
// all ranks call it after sampling.
func (g *book) exchange() error {
	if g == nil || g.ranks.Size() == 1 {
		return nil
	}
	all, err := g.ranks.Gather(g.unsent)
	g.unsent = nil
	if err != nil || g.file == nil {
		return err
	}
	for _, lines := range all { // the first rank has sent none
		for line := range bytes.Lines(lines) {
			if err := g.file.Append(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// A page holds the answers at one place in the run.
type page struct {
	*book
	round int
	place string
}

// Find implements reward.Journal: it returns the recorded scores of a group, nil if there are none. What
// is recorded in a run does not come into g.recorded: a run grades each group once.
func (g *page) Find(task, sample int, group []reward.Sample) []reward.Score {
	scores := g.recorded[g.groupKey(task, sample, group)].Scores
	if len(scores) != len(group) {
		return nil
	}
	return scores
}

// Keep implements reward.Journal.
func (g *page) Keep(task, sample int, group []reward.Sample, scores []reward.Score) error {
	return g.write(entry{Round: g.round, Place: g.place, Problem: group[0].Problem.ID, Key: g.groupKey(task, sample, group), Scores: scores})
}

// Recall implements environment.Journal.
func (g *page) Recall(key string) []byte { return g.recorded[g.turnKey(key)].Answer }

// Note implements environment.Journal.
func (g *page) Note(key string, value []byte) error {
	return g.write(entry{Round: g.round, Place: g.place, Key: g.turnKey(key), Answer: value})
}

// turnKey is a hash over the place and the key of a turn, and the settings.
func (g *page) turnKey(key string) string {
	h := sha256.New()
	texts(h, g.settings, g.place, "turn", key)
	numbers(h, int32(g.round))
	return hex.EncodeToString(h.Sum(nil))
}

// write appends an entry to the file, or on another rank than the first to what exchange sends there.
func (g *page) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("train: writing grades: %w", err)
	}
	line = append(line, '\n')
	if g.file == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.unsent = append(g.unsent, line...)
		return nil
	}
	return g.file.Append(line)
}

// groupKey returns a hash of the settings, the place of a group, its problem and prompt, and its responses: of an episode the last turn.
func (g *page) groupKey(task, sample int, group []reward.Sample) string {
	h := sha256.New()
	texts(h, g.settings, g.place)
	numbers(h, int32(g.round), int32(task), int32(sample), int32(len(group)))
	p := group[0].Problem
	fields, _ := p.Fields.MarshalJSON() // columns can always be encoded
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
	binary.Write(h, binary.LittleEndian, list) // writing to a hash does not fail
}

// A SampleLine is a line of samples to be graded: one of a run's rollouts, or one that users write.
type SampleLine struct {
	Sample reward.Sample
	Known  *reward.Score // the environment's result of an episode; nil if the reward has to grade it
	Group  string        // equal for the lines of a group; "" for a line without a group
	Later  bool          // a line of a run whose columns are in the first line of its group
	Stated bool          // the line has a response
}

// UnmarshalJSON implements json.Unmarshaler. Fields that do not belong to the response are columns
// of the problem. A line of rollouts has them in "columns", or they are in the first line of its group.
// Lines with the same "problem", or without one with the same prompt, are a group.
func (l *SampleLine) UnmarshalJSON(text []byte) error {
	var row data.Object
	var given struct {
		PromptText *string         `json:"prompt_text"`
		PromptIDs  []int32         `json:"prompt_ids"`
		Response   *string         `json:"response"`
		Truncated  bool            `json:"truncated"`
		IDs        []int32         `json:"ids"`
		Turns      json.RawMessage `json:"turns"`
	}
	if err := cmp.Or(row.UnmarshalJSON(text), strict.JSON(text, &given)); err != nil { // row has every field, given the response's
		return err
	}
	answers, err := row.Golds() // the right ones
	if err != nil {
		return err
	}
	id, err := row.Texts("problem") // none without this field, else one
	if err != nil || len(id) > 1 {
		return errors.New(`field "problem" must be a text or a number`)
	}
	value, _ := row.Get("prompt") // the prompt is a text or a list of messages, and may be missing
	prompt, isText := value.(string)
	var chat *data.Chat
	if !isText && value != nil {
		var reason string
		if prompt, chat, reason = row.Prompt(value); reason != "" {
			return fmt.Errorf("field %q: %s", "prompt", reason)
		}
	}
	// Without a name of its own, the problem has its prompt for one.
	*l = SampleLine{Stated: given.Response != nil, Sample: reward.Sample{
		Problem: data.Problem{ID: prompt, Text: prompt, Chat: chat, Answers: answers}, Prompt: prompt, PromptIDs: given.PromptIDs,
		IDs: given.IDs, Truncated: given.Truncated,
	}}
	if l.Stated {
		l.Sample.Response = *given.Response
	}
	if given.PromptText != nil {
		l.Sample.Prompt = *given.PromptText
	}
	if len(id) == 1 {
		l.Sample.Problem.ID = id[0]
	}
	l.Group = l.Sample.Problem.ID
	return l.complete(row, given.Turns)
}

// complete sets the columns of the problem, and reads what a run has written of an episode, of which turns is the
// field of this name, if there is one. As in training the last turn is graded, with the earlier ones beside it, unless
// the environment has given rewards or could not go on: then Known is set.
func (l *SampleLine) complete(line data.Object, turns []byte) error {
	s := &l.Sample
	_, ofRun := line.Get("reward") // a line of a run's rollouts; others are written by users
	s.Problem.Fields, l.Later = columnsOf(line, ofRun)
	var played rundir.Turns
	if err := strict.JSON(turns, &played); len(turns) > 0 && ofRun && err != nil {
		return fmt.Errorf(`field "turns": %w`, err)
	}
	if failed, _ := line.Get("failed"); failed == true && ofRun {
		reason, _ := line.Get("reason")
		l.Known = &reward.Score{Skip: true, Reason: fmt.Sprint(reason)}
	}
	if part, _ := line.Get("part"); part == true && ofRun {
		l.Known = &reward.Score{Skip: true, Reason: "an earlier segment of an episode, which is graded by its last one"}
	}
	if len(played) == 0 || played[0].Author != rundir.Policy { // no episode: "turns" may be a column of the problem
		return nil
	}
	if err := played.Check(len(s.IDs)); err != nil {
		return err
	}
	last := played.Last()
	for _, turn := range played {
		if turn.Author == rundir.Policy && turn.From < last.From {
			s.Earlier = append(s.Earlier, reward.Written{Text: turn.Text, IDs: s.IDs[turn.From:turn.To]})
		}
	}
	s.Response, s.IDs = last.Text, s.IDs[last.From:last.To]
	if sum, rewarded := played.Earned(); rewarded && l.Known == nil {
		l.Known = reward.Earned(sum)
	}
	return nil
}

// columnsOf returns the columns of the problem that a line has, and whether they are in the
// first line of its group instead. Without "columns" they are the fields that do not belong to the response.
func columnsOf(line data.Object, ofRun bool) (columns data.Object, later bool) {
	own, _ := line.Get("columns")
	if own, ok := own.(data.Object); ok && ofRun {
		return own, false
	}
	known := []string{"problem", "sample", "prompt", "prompt_text", "prompt_ids", "response", "answers", "gold", "truncated", "ids"}
	if ofRun {
		known = append(append(known, "skip"), rundir.RolloutLine{}.Fields()...)
	}
	return slices.DeleteFunc(slices.Clone(line), func(m data.Member) bool { return slices.Contains(known, m.Name) }), ofRun
}
