package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"onering/data/arithmetic"
	"onering/tokenize"
)

// A Rollout is one sampled response of a run, ready to be shown.
type Rollout struct {
	Round     int      `json:"round"`
	Prompt    string   `json:"prompt"`
	Tokens    []string `json:"tokens"`          // the texts of the response's tokens; the whole response where there is no tokenizer
	LogP      []number `json:"logp,omitempty"`  // per token, when it was sampled
	Delta     []number `json:"delta,omitempty"` // per token: log-prob at the update less that when it was sampled
	Weight    []number `json:"w,omitempty"`     // per token: dLoss/dlogp at the update
	Answer    string   `json:"answer"`
	Gold      []string `json:"gold"`
	Reason    string   `json:"reason,omitempty"`
	Reward    number   `json:"reward"`
	Advantage number   `json:"advantage"`
	Truncated bool     `json:"truncated,omitempty"`
}

// rolloutLine is a line of rollouts/round-NNNNN.jsonl.
type rolloutLine struct {
	Prompt    string   `json:"prompt"`
	Response  string   `json:"response"`
	Answers   []string `json:"answers"`
	Answer    string   `json:"answer"`
	Reason    string   `json:"reason"`
	Reward    float64  `json:"reward"`
	Advantage float64  `json:"advantage"`
	Truncated bool     `json:"truncated"`
	IDs       []int32  `json:"ids"`
	LogP      []number `json:"logp"`
	Delta     []number `json:"delta"`
	Weight    []number `json:"w"`
}

// wrongWanted is how many wrong answers of the last round are shown at least,
// where there are as many.
const wrongWanted = 10

// ChooseRollouts picks responses to show, of about budget bytes in JSON: from
// the first, the middle and the last rounds; of each round right and wrong
// ones, the wrong ones of the last round first.
func (r *Run) ChooseRollouts(budget int) error {
	files, err := filepath.Glob(filepath.Join(r.Dir, "rollouts", "round-*.jsonl"))
	if err != nil || len(files) == 0 {
		return err
	}
	slices.Sort(files)
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
			share *= 2 // the last round is what people look at
		}
		lines, err := readRollouts(files[at])
		if err != nil {
			return fmt.Errorf("report: %s: %w", files[at], err)
		}
		if i == 0 {
			r.newest = countVerdicts(roundOf(files[at]), lines)
		}
		r.tallyESS(lines)
		r.Rollouts = append(r.Rollouts, choose(lines, roundOf(files[at]), share, tokens)...)
	}
	slices.SortStableFunc(r.Rollouts, func(a, b Rollout) int { return a.Round - b.Round })
	return nil
}

// verdicts count the responses of a round.
type verdicts struct {
	round, all, wrong, truncated, unanswered int // the last two are of the wrong ones
}

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

// Newest returns the first n responses of the newest rollouts file, none if
// there is no file as yet. They come without their tokens.
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

// roundOf reads the round in the name of a rollouts file.
func roundOf(path string) (round int) {
	fmt.Sscanf(filepath.Base(path), "round-%d.jsonl", &round)
	return round
}

// choose takes wrong and right responses in turn until the budget is spent, of
// each kind first one to every problem, then a second one, and so on.
func choose(lines []rolloutLine, round, budget int, tokens *tokenize.Tokenizer) []Rollout {
	var wrong, right []int
	for i := range lines {
		if lines[i].Reward > 0 {
			right = append(right, i)
		} else {
			wrong = append(wrong, i)
		}
	}
	wrong, right = byProblem(lines, wrong), byProblem(lines, right)
	order := wrong[:min(wrongWanted, len(wrong))]
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
			continue // numbers that JSON lacks were made null; there is nothing else to fail
		}
		if budget -= len(size); budget < 0 && len(chosen) > 0 {
			break
		}
		chosen = append(chosen, x)
	}
	return chosen
}

// byProblem moves responses to problems that are there already behind the others.
func byProblem(lines []rolloutLine, of []int) []int {
	turn, seen := map[int]int{}, map[string]int{}
	for _, i := range of {
		turn[i] = seen[lines[i].Prompt]
		seen[lines[i].Prompt]++
	}
	return slices.SortedStableFunc(slices.Values(of), func(a, b int) int { return turn[a] - turn[b] })
}

func (l *rolloutLine) rollout(round int, tokens *tokenize.Tokenizer) Rollout {
	x := Rollout{
		Round: round, Prompt: l.Prompt, Answer: l.Answer, Gold: l.Answers, Reason: l.Reason,
		Reward: number(l.Reward), Advantage: number(l.Advantage), Truncated: l.Truncated,
		Tokens: []string{l.Response},
	}
	if tokens == nil || len(l.IDs) != len(l.LogP) {
		return x
	}
	x.Tokens, x.LogP = pieces(tokens, l.IDs), l.LogP
	if len(l.Delta) == len(l.IDs) {
		x.Delta = l.Delta
	}
	if len(l.Weight) == len(l.IDs) {
		x.Weight = l.Weight
	}
	return x
}

// pieces are the texts of ids, one each. A character of several tokens is shown
// with the last of them.
func pieces(t *tokenize.Tokenizer, ids []int32) []string {
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

// tokenizer is that of the newest checkpoint, else of model.path; nil if
// neither has one: responses are then shown without their tokens.
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

func readRollouts(path string) ([]rolloutLine, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	var lines []rolloutLine
	for {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		var l rolloutLine
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		lines = append(lines, l)
	}
}

// A number is written with four significant digits, and as null where JSON has
// no word for it.
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
