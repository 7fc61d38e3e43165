// Package reward says what a response is worth: the Reward interface, the
// registry of rewards by name, and the Grader that training and evaluation share.
//
// A reward gives each sampled response a number. Each lives in a folder of its
// own and registers itself; reward/all imports them all. The [reward] section of
// a run file names the one that a run uses.
package reward

import (
	"context"

	"onering/data"
)

// A Sample is one finished response, with everything that a reward may want to know about it.
// Samples share their slices and fields with the program: a reward only reads them.
type Sample struct {
	// Problem is the problem, with the accepted answers and all columns of its row.
	Problem data.Problem
	// Prompt is the text that the model saw, PromptIDs its tokens.
	Prompt    string
	PromptIDs []int32
	// Response is the text without special tokens; IDs are its tokens, EOS
	// included.
	Response string
	IDs      []int32
	// Earlier are the turns of an episode before its last one, which Response and IDs are, in
	// sequence. Form and length are those of all that the policy wrote.
	Earlier []Written
	// LogProb has the log-prob of each token of IDs at sampling; nil if unknown.
	LogProb []float32
	// Truncated says that a limit of length cut the response off.
	Truncated bool
}

// A Written is what the policy wrote in a turn, as Response and IDs of a Sample.
type Written struct {
	Text string
	IDs  []int32
}

// A Reward grades responses.
//
// The value itself is the configuration: its exported fields carry toml tags, the program
// decodes the run file's [reward] section into what New returned and then calls Validate
// if there is one. Further abilities are optional interfaces, found by type assertion:
// Comparer, Extractor, io.Closer, and the methods About, SetTemplate, Groups, Varies and
// Ready, see the functions of these names. Validate() error rejects impossible
// configurations. Each of the joined errors is best a *settings.Error, which names the
// key. What the range tags of the fields forbid (see package settings) is checked without
// it.
//
// Methods observe these rules, each of which is a case of rewardtest:
//
//   - New returns a fresh value every time, with defaults that Validate accepts
//     and a toml name on every exported field.
//   - Score returns one score per sample, in the order of the samples, for groups
//     of any size, an empty one included.
//   - Values, components and log figures are finite, the status is OK, Limit or
//     Error, and a sample that was skipped or whose status is not OK has value 0.
//   - Any text is graded without an error: empty, very long, not UTF-8, to a
//     problem without answers or fields.
//   - No method modifies its arguments.
//   - No method keeps a reference to its arguments.
//   - Equal groups get equal scores, whatever was graded before, unless the reward
//     Varies.
//   - The order of the samples does not matter.
//   - Methods may be called concurrently.
//   - If the context has ended, Score returns without waiting, with scores or
//     with an error that wraps the context's.
//   - SameAnswer does not depend on the order of its arguments.
type Reward interface {
	// Score grades responses to one prompt together. In training they are all
	// that were sampled for it; in evaluation each response is graded alone. An
	// error means that the group could not be graded, and ends the run: it never
	// counts as a reward of 0.
	Score(ctx context.Context, group []Sample) ([]Score, error)
}

// A Score is the result of a reward for one sample.
type Score struct {
	// Value is the reward. A right response earns at least 1 and a wrong one less:
	// evaluations count by this, see Right.
	Value float64
	// Verdict says whether the response is right if Value does not.
	Verdict Verdict
	// Skip says that the reward does not grade the sample.
	Skip bool
	// Answer is the text that counted as the response's answer, empty if there was none.
	Answer string
	// Reason is the rule that decided, in a few words.
	Reason string
	Status Status
	// Components are the parts that Value was made of, by name. They are kept
	// with the rollouts, and their means with the metrics of the round.
	Components map[string]float64
	// Weights are the weights of the components that are added, by name.
	Weights map[string]float64 `json:",omitempty"`
	// Log has further figures, which are stored like Components.
	Log map[string]float64
}

// Each returns the scores of a reward that grades each sample by itself.
func Each(group []Sample, score func(Sample) Score) []Score {
	scores := make([]Score, len(group))
	for i, sample := range group {
		scores[i] = score(sample)
	}
	return scores
}

// Right says whether the sample counts as right in evaluations.
func (s Score) Right() bool {
	if s.Verdict != byValue {
		return s.Verdict == isRight
	}
	return s.Value >= 1
}

// Judged says whether evaluations can count the sample as right or wrong.
func (s Score) Judged() bool { return !s.Skip && s.Verdict != unknown }

// A Verdict says whether a response is right.
type Verdict string

const (
	byValue Verdict = "" // right if Value is at least 1
	isRight Verdict = "right"
	isWrong Verdict = "wrong"
	unknown Verdict = "unknown" // it has a value, but the part that knows what is right skipped it
)

// A Status says whether a grade was reached.
type Status string

const (
	OK    Status = ""      // the sample was graded
	Limit Status = "limit" // grading would have taken more work than allowed
	Error Status = "error" // the problem has nothing to grade with, or the grader has a fault
)

// String returns ok, limit or error.
func (s Status) String() string {
	if s == OK {
		return "ok"
	}
	return string(s)
}

// A Comparer says whether two extracted answers mean the same, for the majority vote of
// evaluations. Without it, answers are compared as texts.
type Comparer interface {
	SameAnswer(a, b string) bool
}

// SameAnswer returns the comparison of r, nil if it has none.
func SameAnswer(r Reward) func(a, b string) bool {
	if c, ok := r.(Comparer); ok {
		return c.SameAnswer
	}
	return nil
}

// About returns the line by which a reward or an environment describes itself in lists,
// "" if it has none.
func About(plugin any) string {
	if x, ok := plugin.(interface{ About() string }); ok {
		return x.About()
	}
	return ""
}
