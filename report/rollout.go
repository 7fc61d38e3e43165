package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"onering/data/arithmetic"
	"onering/files"
	"onering/tokenize"
)

// A Rollout is one sampled response of a run, ready to be shown.
type Rollout struct {
	Round     int      `json:"round"`
	Prompt    string   `json:"prompt"`
	Tokens    []string `json:"tokens"`          // the text of each token; without a tokenizer, one element with the whole response
	LogP      []number `json:"logp,omitempty"`  // per token, when it was sampled
	Delta     []number `json:"delta,omitempty"` // per token: log-prob at the update minus log-prob at sampling
	Weight    []number `json:"w,omitempty"`     // per token: dLoss/dlogp at the update
	Answer    string   `json:"answer"`
	Gold      []string `json:"gold"`
	Reason    string   `json:"reason,omitempty"`
	Reward    number   `json:"reward"`
	Advantage number   `json:"advantage"`
	Truncated bool     `json:"truncated,omitempty"`
}

// A rolloutLine is one line of rollouts/round-NNNNN.jsonl.
type rolloutLine struct {
	Prompt    string   `json:"prompt"`
	Response  string   `json:"response"`
	Answers   []string `json:"answers"`
	Answer    string   `json:"answer"`
	Reason    string   `json:"reason"`
	Reward    float64  `json:"reward"`
	Skipped   bool     `json:"skipped"` // the response has no reward
	Advantage float64  `json:"advantage"`
	Truncated bool     `json:"truncated"`
	IDs       []int32  `json:"ids"`
	LogP      []number `json:"logp"`
	Delta     []number `json:"delta"`
	Weight    []number `json:"w"`
}

// minWrong is how many wrong responses of a round come first on the page. A round
// with fewer wrong responses shows all of them.
const minWrong = 10

// ChooseRollouts sets r.Rollouts to right and wrong responses of the first, the last
// and up to three rounds between them. In JSON they take about budget bytes. It also
// counts the verdicts of the last round and adds the responses to the run's ESS
// figure.
func (r *Run) ChooseRollouts(budget int) error {
	files, err := filepath.Glob(filepath.Join(r.Dir, "rollouts", "round-*.jsonl"))
	if err != nil || len(files) == 0 {
		return err
	}
	slices.Sort(files)
	// The newest file comes first; the order of the others does not matter.
	pick := []int{len(files) - 1, 0, len(files) / 2, len(files) / 4, len(files) * 3 / 4}
	slices.Sort(pick[1:])
	pick = slices.Compact(pick)
	tokens := r.tokenizer()
	used := map[int]bool{}
	for i, at := range pick {
		if used[at] {
			continue
		}
		used[at] = true
		share := budget / len(pick)
		if i == 0 && len(pick) > 1 {
			share *= 2 // readers look at the last round most
		}
		lines, err := readRollouts(files[at])
		if err != nil {
			return fmt.Errorf("report: %s: %w", files[at], err)
		}
		if i == 0 {
			r.newestVerdicts = countVerdicts(roundOf(files[at]), lines)
		}
		r.tallyESS(lines)
		r.Rollouts = append(r.Rollouts, selectResponses(lines, roundOf(files[at]), share, tokens)...)
	}
	slices.SortStableFunc(r.Rollouts, func(a, b Rollout) int { return a.Round - b.Round })
	return nil
}

// verdicts are the numbers of responses of a round: all, the wrong ones, and the wrong
// ones that are truncated or have no answer.
type verdicts struct {
	round, all, wrong, truncated, unanswered int
}

// countVerdicts counts the responses of a round.
func countVerdicts(round int, lines []rolloutLine) verdicts {
	v := verdicts{round: round, all: len(lines)}
	for i := range lines {
		switch l := &lines[i]; {
		case l.Reward > 0:
			continue
		case l.Truncated:
			v.truncated++
		case l.Answer == "":
			v.unanswered++
		}
		v.wrong++
	}
	return v
}

// Newest returns the first n responses of the newest rollouts file, or none if there
// is no such file yet. The responses are not split into tokens.
func (r *Run) Newest(n int) ([]Rollout, error) {
	files, err := filepath.Glob(filepath.Join(r.Dir, "rollouts", "round-*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, err
	}
	path := slices.Max(files)
	lines, err := readRollouts(path)
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	var list []Rollout
	for i := range lines[:min(n, len(lines))] {
		list = append(list, lines[i].rollout(roundOf(path), nil))
	}
	return list, nil
}

// roundOf returns the round that the name of a rollouts file states.
func roundOf(path string) (round int) {
	fmt.Sscanf(filepath.Base(path), "round-%d.jsonl", &round)
	return round
}

// selectResponses selects responses until their JSON exceeds budget bytes: first up
// to minWrong wrong ones, then right and wrong ones alternately. Among the wrong and
// among the right ones, every problem appears once before any appears twice.
func selectResponses(lines []rolloutLine, round, budget int, tokens *tokenize.Tokenizer) []Rollout {
	var wrong, right []int
	for i := range lines {
		if lines[i].Reward > 0 {
			right = append(right, i)
		} else {
			wrong = append(wrong, i)
		}
	}
	wrong, right = interleaveProblems(lines, wrong), interleaveProblems(lines, right)
	order := wrong[:min(minWrong, len(wrong))]
	rest := wrong[len(order):]
	for i := range max(len(rest), len(right)) {
		if i < len(right) {
			order = append(order[:len(order):len(order)], right[i])
		}
		if i < len(rest) {
			order = append(order, rest[i])
		}
	}
	var chosen []Rollout
	for _, i := range order {
		x := lines[i].rollout(round, tokens)
		size, err := json.Marshal(x)
		if err != nil {
			continue // cannot happen: type number writes NaN and infinities as null
		}
		if budget -= len(size); budget < 0 && len(chosen) > 0 {
			break
		}
		chosen = append(chosen, x)
	}
	return chosen
}

// interleaveProblems sorts the lines with the given indices: first the first response
// to every prompt, then the second response to every prompt, and so on.
func interleaveProblems(lines []rolloutLine, indices []int) []int {
	turn, seen := map[int]int{}, map[string]int{}
	for _, i := range indices {
		turn[i] = seen[lines[i].Prompt]
		seen[lines[i].Prompt]++
	}
	return slices.SortedStableFunc(slices.Values(indices), func(a, b int) int { return turn[a] - turn[b] })
}

// rollout converts a line for the page. It splits the response into tokens if there
// is a tokenizer and the line has a log-prob for each token.
func (l *rolloutLine) rollout(round int, tokens *tokenize.Tokenizer) Rollout {
	x := Rollout{
		Round: round, Prompt: l.Prompt, Answer: l.Answer, Gold: l.Answers, Reason: l.Reason,
		Reward: number(l.Reward), Advantage: number(l.Advantage), Truncated: l.Truncated,
		Tokens: []string{l.Response},
	}
	if tokens == nil || len(l.IDs) != len(l.LogP) {
		return x
	}
	x.Tokens, x.LogP = tokenTexts(tokens, l.IDs), l.LogP
	if len(l.Delta) == len(l.IDs) {
		x.Delta = l.Delta
	}
	if len(l.Weight) == len(l.IDs) {
		x.Weight = l.Weight
	}
	return x
}

// tokenTexts returns the text of each token. If several tokens make up one character,
// the last of them has it and the others are empty.
func tokenTexts(t *tokenize.Tokenizer, ids []int32) []string {
	d := t.NewDecoder()
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = d.Add(id)
	}
	if len(texts) > 0 {
		texts[len(texts)-1] += d.Flush()
	}
	return texts
}

// tokenizer loads the tokenizer of the newest checkpoint, or else that of model.path.
// It returns nil if neither can be loaded; the page then shows whole responses.
func (r *Run) tokenizer() *tokenize.Tokenizer {
	dirs, _ := filepath.Glob(filepath.Join(r.Dir, "checkpoints", "step-*"))
	slices.Sort(dirs)
	slices.Reverse(dirs)
	path := r.Config["model.path"]
	if path != "" && path != arithmetic.Name {
		dirs = append(dirs, path)
	}
	for _, dir := range dirs {
		if t, err := tokenize.Load(dir); err == nil {
			return t
		}
	}
	if path == arithmetic.Name {
		if t, err := tokenize.LoadFS(arithmetic.Model()); err == nil {
			return t
		}
	}
	return nil
}

// readRollouts reads a rollouts file. It ignores a last line without a newline, which
// a running process may still be writing.
func readRollouts(path string) ([]rolloutLine, error) {
	f, err := files.OpenIn(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	var lines []rolloutLine
	for number := 1; ; number++ {
		text, err := readLine(in)
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		var l rolloutLine
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if !l.Skipped {
			lines = append(lines, l)
		}
	}
}

// A number has four significant digits in JSON. NaN and infinities, which JSON
// cannot represent, are null.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) { return appendNumber(nil, float64(n)), nil }

// UnmarshalJSON reads null as NaN.
func (n *number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = number(math.NaN())
		return nil
	}
	return json.Unmarshal(data, (*float64)(n))
}
