// Package doctor reads what a run leaves behind, from its first round on, and says what is
// wrong with it: the cause, the figure that shows it and the setting to change.
//
// [Doctor.Look] is the way in. A [Round] has the evidence: the responses, what they earned
// and the records of the round's steps. figuresOf makes figures of it, and the rules, in the order
// in which one fault explains another, look at these figures alone: rules of sampling and
// reward (sampling.go, rewards.go), of the optimizer's steps (steps.go) and of the course of
// the run (course.go). Problems says what is wrong with the data. A rule speaks once in a run.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"onering/data"
	"onering/train/metrics"
)

// A Finding is one thing that is wrong with a run.
type Finding struct {
	Cause string `json:"cause"`         // its class, for programs, such as cut
	Text  string `json:"text"`          // the cause, the figure that shows it, and the setting to change
	Set   string `json:"set,omitempty"` // a value of that setting to try, as --set takes it
}

// With names a value of a setting to try.
func (f *Finding) With(path string, value any) *Finding {
	f.Set = fmt.Sprintf("%s=%v", path, value)
	return f
}

// times is With for so many times the present value, if there is one.
func (f *Finding) times(facts *Facts, path string, factor float64) *Finding {
	if x := facts.number(path); x > 0 {
		return f.With(path, strconv.FormatFloat(x*factor, 'g', 4, 64))
	}
	return f
}

// newFinding returns a Finding whose text is formatted as by Sprintf.
func newFinding(cause, format string, args ...any) *Finding {
	return &Finding{Cause: cause, Text: fmt.Sprintf(format, args...)}
}

// kind is the kind of the records that findings are in metrics.jsonl.
const kind = "diagnosis"

// Record returns the finding as a record of metrics.jsonl.
func (f Finding) Record(round, step int) metrics.Record {
	r := metrics.Record{}.With("kind", kind).With("round", round).With("step", step).With("cause", f.Cause).With("text", f.Text)
	if f.Set != "" {
		r = r.With("set", f.Set)
	}
	return r
}

// FindingOf returns the finding of a record of metrics.jsonl; ok is false for other records.
func FindingOf(r metrics.Record) (f Finding, ok bool) {
	cause, _ := r.Get("cause").(string)
	text, _ := r.Get("text").(string)
	set, _ := r.Get("set").(string)
	return Finding{cause, text, set}, r.Get("kind") == kind
}

// Facts are what is known of a run before its first round.
type Facts struct {
	// Settings are the settings of the run, by section and key, as text.
	Settings map[string]string
	// Vocabulary is the number of tokens that the model chooses from, Parameters that of the
	// weights which are trained, and Weight their typical size.
	Vocabulary, Parameters int
	Weight                 float64
	// Frequency is the loss of a supervised model that knows nothing but how often each token
	// is learned; 0 if it is unknown.
	Frequency float64
	// ChatTemplateUnused says that the tokenizer has a chat template which the prompts do not use.
	ChatTemplateUnused bool
	// Extract is where the reward looks for answers, "" if it looks for none, and ComparesAnswers
	// says that it compares answers.
	Extract         string
	ComparesAnswers bool
	// Weights are those of the parts that the reward adds, by name.
	Weights map[string]float64
	// Defaults has the objective's settings as they are by default, by section and key.
	Defaults map[string]string
	// Steps is the number of optimizer steps of the run, 0 if it is unknown.
	Steps int
	// Neighbor returns the answers of the row that is so many rows behind a problem's; nil if there is none.
	Neighbor func(q data.Problem, rows int) []string
	// Data is what is wrong with the problems.
	Data []Finding
}

// number returns a setting as a number, NaN without one.
func (f *Facts) number(key string) float64 {
	x, err := strconv.ParseFloat(f.Settings[key], 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// A Round is the evidence of a finished round.
type Round struct {
	Problems  []data.Problem
	Responses []Response
	Steps     []metrics.Record // of the optimizer steps of the round
	IdleShare float64          // share of the problems from which no step learned anything
}

// A Response is a response of a round.
type Response struct {
	Problem          int    // index into the round's problems
	Text             string // without special tokens
	Answer           string // what the reward took for its answer
	Value            float64
	Skipped          bool // without a grade
	Told             bool // an environment told the reward
	Judged, Right    bool // what the reward says about it
	Parts            map[string]float64
	Tokens           int
	Truncated        bool
	OutOfTurns       bool    // environment.max_turns truncated it, and not the limit of tokens
	Stopped          bool    // a stop text of the settings ended it
	EndsAt           string  // the token that ended it, if that is not a special one
	WentOnAfter      string  // the special token that it went on after, if there is one
	LogProb, Entropy float64 // sums over its tokens
}

// A Doctor says what is wrong with one run.
type Doctor struct {
	facts Facts
	state State
}

// A State is what a Doctor remembers; checkpoints hold it.
type State struct {
	Losses          metrics.Exact `json:"losses"` // of the newest steps
	Early           metrics.Exact `json:"early"`  // losses of the first steps of a supervised run
	FruitlessRounds int           `json:"flat"`   // number of rounds in a row that taught nothing
	Rounds          int           `json:"rounds"` // number of rounds seen
	First           metrics.Exact `json:"first"`  // means over the first rounds, by figure
	Best            metrics.Exact `json:"best"`   // the best round's reward and right share, the newest one's, each with its standard error
	RoundsFallen    int           `json:"fallen"` // number of rounds in a row that were far below the best
	Before          metrics.Exact `json:"before"` // figures of the first evaluation
	Said            []string      `json:"said"`   // causes that were named

	Warned  metrics.Exact `json:"warned,omitempty"`  // of checkpoints of earlier versions
	Failing bool          `json:"failing,omitempty"` // of checkpoints of earlier versions
}

// New returns a Doctor who has seen nothing of a run yet.
func New(f Facts) *Doctor {
	d := &Doctor{facts: f}
	d.state.fill()
	return d
}

// fill completes the state, also one of an earlier version.
func (s *State) fill() {
	for len(s.First) < figures {
		s.First = append(s.First, 0)
	}
	for len(s.Best) < bests {
		s.Best = append(s.Best, math.NaN())
	}
	for len(s.Before) < evaluations {
		s.Before = append(s.Before, math.NaN())
	}
}

// State returns a copy of what the Doctor remembers.
func (d *Doctor) State() *State {
	s := d.state
	for _, list := range []*metrics.Exact{&s.Losses, &s.Early, &s.First, &s.Best, &s.Before} {
		*list = slices.Clone(*list)
	}
	s.Said = slices.Clone(s.Said)
	return &s
}

// Restore makes the Doctor remember a copy of s, the state in a checkpoint; it refuses one that no Doctor has written.
func (d *Doctor) Restore(s *State) error {
	switch {
	case s == nil:
		return errors.New("it has no state of the warnings")
	case len(s.First) > figures || len(s.Best) > bests || len(s.Before) > evaluations || len(s.Losses) > lossWindow || s.FruitlessRounds < 0 || s.Rounds < 0:
		return fmt.Errorf("the state of the warnings has %d, %d and %d figures, %d rounds", len(s.Losses), len(s.First), len(s.Best), s.Rounds)
	}
	d.state = *s
	d.state = *d.State() // a copy
	d.state.Warned, d.state.Failing = nil, false
	d.state.fill()
	return nil
}

// Begin returns what is wrong before the first round.
func (d *Doctor) Begin() (list []Finding) {
	for _, f := range append(slices.Clone(d.facts.Data), d.facts.settingsFaults()...) {
		list = append(list, d.say(&f)...)
	}
	return list
}

// Look looks at a record of metrics.jsonl, and at the evidence where it is that of a round.
// It returns what was not said before.
func (d *Doctor) Look(r metrics.Record, round *Round) []Finding {
	switch r.Get("kind") {
	case "step":
		return d.say(d.stepFault(r))
	case "eval":
		return d.say(d.evaluation(r))
	case "round":
		if round != nil {
			return d.say(d.roundFault(r, round))
		}
	}
	return nil
}

// say returns a finding unless its cause was named before.
func (d *Doctor) say(f *Finding) []Finding {
	if f == nil || slices.Contains(d.state.Said, f.Cause) {
		return nil
	}
	d.state.Said = append(d.state.Said, f.Cause)
	return []Finding{*f}
}

// readRounds is the number of first rounds whose responses are read. Later rounds are read only if they teach nothing.
const readRounds = 2

// leastGraded is the least number of graded responses whose shares say something.
const leastGraded = 16

// roundFault takes a round into the state, and returns its first fault: of what was sampled and earned, of the steps, or of
// the course of the run. After a fall of the reward what is sampled is a consequence, so it is not looked at.
func (d *Doctor) roundFault(r metrics.Record, round *Round) (f *Finding) {
	d.remember(r, round)
	right := r.Float("right_share")
	read := (d.state.Rounds <= readRounds || d.state.FruitlessRounds > 0) && d.state.RoundsFallen == 0 // the responses for faults
	if read || !d.facts.ComparesAnswers {
		p := d.figuresOf(r, round)
		if p.answersKnown && len(p.graded) > 0 { // else only the reward's verdict is known
			right = p.right
		}
		if read {
			f = p.fault()
		}
	}
	if f == nil {
		f = d.stepsFault(r, round.Steps)
	}
	course := d.courseFault(r, round, right) // also notes the best round, whatever was found before
	return cmp.Or(f, course)
}

// fault returns the first fault of what was sampled and earned; nil if there is none, or if too few responses have a grade.
func (p *reading) fault() (f *Finding) {
	failed := p.record.Float("environment/failed_share")
	switch {
	case failed > 0.5:
		return newFinding("environment", "the environment fails in %s of the episodes, which have no grade; most often: "+
			"%v. Look at the environment's program and its settings in [environment]", percent(failed), p.record.Get("environment/reason"))
	case p.skipped > 0.2 && !(failed > 0): // failed is NaN without an environment
		return newFinding("skipped", "%s of the responses have no grade, since the reward skipped them: nothing is learned "+
			"from these. Have the reward grade every response", percent(p.skipped))
	case len(p.graded) < leastGraded:
		return nil
	}
	if f = p.samplingFault(); f == nil {
		f = p.rewardsFault()
	}
	return f
}

// percent writes a share as a percentage.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
