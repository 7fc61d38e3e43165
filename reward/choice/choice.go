// Package choice is the reward for multiple choice: 1 for a response that picks
// the right choice, by its letter or its text, else 0.
//
// The response and the list of choices alone decide which choice it picks. That choice is
// then compared with the right one. So no response is right for two answers that differ.
package choice

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"onering/internal/settings"
	"onering/reward"
)

func init() { reward.Register("choice", func() reward.Reward { return newRule() }) }

// A rule is the reward "choice".
type rule struct {
	Choices string   `toml:"choices" help:"column with the choices: a list of texts or of {label, text}, {text = [...], label = [...]}, or {A = ..., B = ...}; or columns with a choice each, with commas between. If not given it is the column choices or options, and without one only letters are answers. Prompts that do not have the choices show them"`
	Labels  []string `toml:"labels" help:"what the choices are called, where the column does not say"`
	Gold    string   `toml:"gold" choice:"auto label index number text" note:"an index counts from 0, a number from 1; auto takes what is possible, and a row for which two are possible is an error" help:"what a row's answer is"`
	All     bool     `toml:"all" help:"a row's list of answers is one answer of several choices, and a response has to pick them all; without it each is right alone"`
	Where   string   `toml:"extract" choice:"auto boxed tag phrase last_line whole" note:"auto is the first of these that there is, but not whole" help:"what of a response is its answer"`
	After   string   `toml:"after" help:"a mark such as </think>: only what follows the last of them counts, and a response without one has no answer"`
}

// newRule returns the reward with its defaults.
func newRule() *rule {
	return &rule{Labels: strings.Split("ABCDEFGHIJ", ""), Gold: "auto", Where: "auto"}
}

// About is the reward's line in lists.
func (*rule) About() string {
	return "1 for a response that picks the right one of several choices, by letter or text"
}

// Validate refuses labels that cannot be distinguished or are not single words.
func (r *rule) Validate() error {
	if reason := checkLabels(r.Labels); reason != "" || len(r.Labels) == 0 {
		return &settings.Error{Key: "labels", Value: strings.Join(r.Labels, ", "), Remedy: "must be different words, such as A, B, C, D"}
	}
	return nil
}

// checkLabels says what is wrong with labels, "" if nothing is.
func checkLabels(labels []string) string {
	seen := map[string]bool{}
	for _, label := range labels {
		isWord := label != "" && len(label) <= 32 && strings.IndexFunc(label, func(r rune) bool { return !inWord(r) }) < 0
		if folded := strings.ToLower(label); !isWord || seen[folded] || label != normalForm(label) {
			return "the label " + label + " is not a word or stands twice"
		}
		seen[strings.ToLower(label)] = true
	}
	return ""
}

// inWord says whether r is part of a word. An accent is part of the letter before.
func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }

// Score gives 1 to a response that picks the right choices, and 0 to any other and
// to a truncated one.
func (r *rule) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	return reward.Each(group, r.score), nil
}

// score gives 1 to a response that picks exactly the choices of one of the golds. A row whose
// choices or answer cannot be read is an Error.
func (r *rule) score(sample reward.Sample) reward.Score {
	options, reason := r.readOptions(sample.Problem.Fields)
	if reason != "" {
		return reward.Score{Status: reward.Error, Reason: reason}
	}
	golds, reason := r.golds(options, sample.Problem.Answers)
	if reason != "" {
		return reward.Score{Status: reward.Error, Reason: reason}
	}
	picked, reason := r.find(options, sample.Response)
	score := reward.Score{Answer: options.labelsOf(picked), Reason: reason}
	switch right := slices.ContainsFunc(golds, func(gold []int) bool { return slices.Equal(gold, picked) }); {
	case len(picked) == 0:
	case !right:
		score.Reason = "another choice"
	case sample.Truncated:
		score.Reason = "truncated"
	default:
		score.Value, score.Reason = 1, "the right choice"
	}
	return score
}

// SameAnswer compares picked choices, whose text form is unique.
func (*rule) SameAnswer(a, b string) bool { return a != "" && a == b }
