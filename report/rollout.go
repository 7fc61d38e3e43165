package report

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"onering/data"
	"onering/internal/files"
	"onering/internal/strict"
	"onering/tokenize"
	"onering/train/rundir"
)

// A problem is the problem of one group of responses.
type problem struct {
	Round  int      `json:"round"`
	ID     string   `json:"id"`
	Source string   `json:"source,omitempty"` // the name of its file, if the run has several files
	Prompt string   `json:"prompt"`           // the problem's text
	Gold   []string `json:"gold"`
	// Text and IDs are the prompt as the model saw it and the first of its Tokens tokens.
	// Older runs do not have them.
	Text   string  `json:"text,omitempty"`
	IDs    []int32 `json:"ids,omitempty"`
	Tokens int     `json:"tokens,omitempty"`
	// All counts the graded responses, also those that the page does not show. Judged
	// counts those whose reward says whether they are right.
	All    int    `json:"all"`
	Judged int    `json:"judged"`
	Right  int    `json:"right"`
	Reward number `json:"reward"` // mean reward
}

// A rolloutView is one sampled response of a run, ready to be shown.
type rolloutView struct {
	Round     int      `json:"-"`
	Prompt    string   `json:"-"`
	Gold      []string `json:"-"`
	Problem   int      `json:"at"`              // index in the run's Problems, which hold the three fields above for the page
	Tokens    []string `json:"tokens"`          // the text of each token; without a tokenizer, one element with the whole response
	LogP      []number `json:"logp,omitempty"`  // log-prob of each token when it was sampled
	Delta     []number `json:"delta,omitempty"` // per token: log-prob at the update minus log-prob at sampling
	Weight    []number `json:"w,omitempty"`     // per token: dLoss/dlogp at the update
	Answer    string   `json:"answer"`
	Reason    string   `json:"reason,omitempty"`
	Reward    number   `json:"reward"`
	Advantage number   `json:"advantage"`
	Verdict   string   `json:"verdict"` // right or wrong; unknown if the reward cannot tell
	Truncated bool     `json:"truncated,omitempty"`
	Part      bool     `json:"part,omitempty"`  // an earlier segment of an episode, which no share counts
	Turns     []turn   `json:"turns,omitempty"` // nil if the policy wrote the whole response
}

// A turn is the part of a response that the policy or the environment wrote: Tokens from
// number From up to, not including, number To.
type turn struct {
	Author string  `json:"author"`
	From   int     `json:"from"`
	To     int     `json:"to"`
	Reward *number `json:"reward,omitempty"`
}

// A rolloutLine is one line of rollouts/round-NNNNN.jsonl.
type rolloutLine struct {
	rundir.RolloutLine
	group int // the number of the problem in its round
}

// The verdicts of a response.
const (
	right   = "right"
	wrong   = "wrong"
	unknown = "unknown"
)

// verdict returns the verdict of a line. Lines of older runs do not state it: there a
// reward above 0 means right. stated says that the run states verdicts.
func verdict(l *rundir.RolloutLine, stated bool) string {
	switch {
	case l.Right == nil && stated:
		return unknown
	case l.Right == nil && reward(l) > 0, l.Right != nil && *l.Right:
		return right
	}
	return wrong
}

// reward is 0 for a response without one.
func reward(l *rundir.RolloutLine) number {
	if l.Reward == nil {
		return 0
	}
	return number(*l.Reward)
}

func (l *rolloutLine) verdict() string { return verdict(&l.RolloutLine, l.PromptIDs != nil) }

// minWrong is how many wrong responses of a round come first on the page. A round
// with fewer wrong responses shows all of them.
const minWrong = 10

// ChooseRollouts sets r.Rollouts to right and wrong responses of the first, the last and up to
// three rounds between them. In JSON they take about budget bytes. It also counts the verdicts
// of the last round and adds the responses to the run's ESS figure.
func (r *Run) ChooseRollouts(budget int) error {
	files := r.rolloutFiles()
	if len(files) == 0 {
		return nil
	}
	// The newest file comes first; the order of the others does not matter.
	pick := []int{len(files) - 1, 0, len(files) / 2, len(files) / 4, len(files) * 3 / 4}
	slices.Sort(pick[1:])
	pick = slices.Compact(pick)
	tokens := r.tokenizer()
	for i, at := range pick {
		if slices.Contains(pick[:i], at) { // there are few files
			continue
		}
		share := budget / len(pick)
		if i == 0 && len(pick) > 1 {
			share *= 2 // readers want to see the last round most
		}
		lines, err := readRollouts(files[at])
		if err != nil {
			return err
		}
		if i == 0 {
			r.newestVerdicts = countVerdicts(roundOf(files[at]), lines)
		}
		r.tallyESS(lines)
		chosen, problems := selectResponses(lines, roundOf(files[at]), share, tokens)
		for k := range chosen {
			chosen[k].Problem += len(r.Problems) // so far it is an index in problems
		}
		r.Rollouts, r.Problems = append(r.Rollouts, chosen...), append(r.Problems, problems...)
	}
	slices.SortStableFunc(r.Rollouts, func(a, b rolloutView) int { return a.Round - b.Round })
	return nil
}

// A verdicts counts the responses of a round: all, the wrong ones, and the wrong ones
// that are truncated or have no answer.
type verdicts struct {
	round, all, wrong, truncated, unanswered, unknown int
}

// countVerdicts counts the responses of a round.
func countVerdicts(round int, lines []rolloutLine) verdicts {
	v := verdicts{round: round}
	for i := range lines {
		if lines[i].Part {
			continue
		}
		v.all++
		switch l, is := &lines[i], lines[i].verdict(); {
		case is == right:
			continue
		case is == unknown:
			v.unknown++
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
func (r *Run) Newest(n int) ([]rolloutView, error) {
	files := r.rolloutFiles()
	if len(files) == 0 {
		return nil, nil
	}
	path := files[len(files)-1]
	lines, err := readRollouts(path)
	if err != nil {
		return nil, err
	}
	var list []rolloutView
	for i := range lines[:min(n, len(lines))] {
		list = append(list, lines[i].toView(roundOf(path), nil))
	}
	return list, nil
}

// rolloutFiles lists the rollouts files in the order of their rounds.
func (r *Run) rolloutFiles() []string {
	return files.Glob(r.Dir, "rollouts/round-*.jsonl")
}

// roundOf returns the round that the name of a rollouts file states.
func roundOf(path string) (round int) {
	fmt.Sscanf(filepath.Base(path), "round-%d.jsonl", &round)
	return round
}

// selectResponses selects responses, and the problems that they answer, until their JSON exceeds budget bytes:
// first up to minWrong wrong ones, then alternately the other responses to the same problems, which complete
// their groups, and right and wrong ones to further problems. Among the first and the last responses no problem
// appears twice before every problem has appeared.
func selectResponses(lines []rolloutLine, round, budget int, tokens *tokenize.Tokenizer) ([]rolloutView, []problem) {
	var bad, good []int
	for i := range lines {
		if lines[i].verdict() == right {
			good = append(good, i)
		} else {
			bad = append(bad, i)
		}
	}
	bad, good = interleaveProblems(lines, bad), interleaveProblems(lines, good)
	first := bad[:min(minWrong, len(bad))]
	rank := map[int]int{} // from a group to its place among the first responses
	for k, i := range first {
		rank[lines[i].group] = k
	}
	var same, others []int // responses to problems of the first ones, and to further problems
	for _, i := range byTurns(good, bad[len(first):]) {
		if _, ok := rank[lines[i].group]; ok {
			same = append(same, i)
		} else {
			others = append(others, i)
		}
	}
	slices.SortStableFunc(same, func(a, b int) int { return rank[lines[a].group] - rank[lines[b].group] })
	order := append(slices.Clone(first), byTurns(same, others)...)
	var chosen []rolloutView
	var problems []problem
	indexOf := map[int]int{} // from a group to the index of its problem in problems
	all := problemsOf(lines, round)
	size := func(x any) int {
		text, _ := json.Marshal(x) // cannot fail: type number writes NaN and infinities as null
		return len(text)
	}
	for _, i := range order {
		x, group := lines[i].toView(round, tokens), lines[i].group
		_, known := indexOf[group]
		budget -= size(x)
		if !known {
			budget -= size(all[group])
		}
		if budget < 0 && len(chosen) > 0 {
			break
		}
		if !known {
			indexOf[group] = len(problems)
			problems = append(problems, all[group])
		}
		x.Problem = indexOf[group]
		chosen = append(chosen, x)
	}
	return chosen, problems
}

// byTurns returns the elements of two lists, alternately, then the rest of the longer list.
func byTurns(a, b []int) []int {
	var list []int
	for i := range max(len(a), len(b)) {
		list = append(list, a[min(i, len(a)):min(i+1, len(a))]...)
		list = append(list, b[min(i, len(b)):min(i+1, len(b))]...)
	}
	return list
}

// A longer prompt is cut on the page.
const (
	promptBytes  = 16 << 10
	promptTokens = 4 << 10
)

// problemsOf returns the problems that the lines of a round answer, by group.
func problemsOf(lines []rolloutLine, round int) map[int]problem {
	all := map[int]problem{}
	for i := range lines {
		l := &lines[i]
		p, ok := all[l.group]
		if !ok {
			p = problem{Round: round, ID: l.Problem, Source: l.Source, Prompt: shorten(l.Prompt, promptBytes), Gold: l.Answers,
				Tokens: len(l.PromptIDs), IDs: l.PromptIDs[:min(len(l.PromptIDs), promptTokens)]}
			if l.PromptText != l.Prompt {
				p.Text = shorten(l.PromptText, promptBytes)
			}
		}
		if l.Part { // its episode counts once, by its last segment
			all[l.group] = p
			continue
		}
		p.Reward = (p.Reward*number(p.All) + reward(&l.RolloutLine)) / number(p.All+1)
		p.All++
		switch l.verdict() {
		case right:
			p.Right++
			p.Judged++
		case wrong:
			p.Judged++
		}
		all[l.group] = p
	}
	return all
}

// shorten shortens a text to so many bytes.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " ..."
}

// interleaveProblems sorts the lines with the given indices: first the first response
// to every problem, then the second response to every problem, and so on.
func interleaveProblems(lines []rolloutLine, indices []int) []int {
	inGroup, seen := map[int]int{}, map[int]int{} // the number of a line in its group; how many lines a group has so far
	for _, i := range indices {
		inGroup[i] = seen[lines[i].group]
		seen[lines[i].group]++
	}
	return slices.SortedStableFunc(slices.Values(indices), func(a, b int) int { return inGroup[a] - inGroup[b] })
}

// toView converts a line for the page. It splits the response into tokens if there
// is a tokenizer and the line has a log-prob for each token.
func (l *rolloutLine) toView(round int, tokens *tokenize.Tokenizer) rolloutView {
	x := rolloutView{
		Round: round, Prompt: l.Prompt, Answer: l.Answer, Gold: l.Answers, Reason: l.Reason,
		Reward: reward(&l.RolloutLine), Advantage: number(l.Advantage), Truncated: l.Truncated, Verdict: l.verdict(), Part: l.Part,
		Tokens: []string{l.Response},
	}
	unsplit := tokens == nil || len(l.IDs) != len(l.LogP)
	x.addTurns(l.Turns, unsplit) // makes each turn one token if they are unsplit
	if unsplit {
		return x
	}
	x.Tokens, x.LogP = tokenTexts(tokens, l.IDs), numbers(l.LogP)
	if len(l.Delta) == len(l.IDs) {
		x.Delta = numbers(l.Delta)
	}
	if len(l.W) == len(l.IDs) {
		x.Weight = numbers(l.W)
	}
	return x
}

// addTurns adds the turns of an episode. If the response is unsplit, which means not split into
// tokens, each turn counts as one token.
func (x *rolloutView) addTurns(turns rundir.Turns, unsplit bool) {
	for i, t := range turns {
		shown := turn{t.Author, t.From, t.To, (*number)(t.Reward)}
		if unsplit {
			if i == 0 {
				x.Tokens = nil // it had the whole response
			}
			x.Tokens, shown.From, shown.To = append(x.Tokens, t.Text), i, i+1
		}
		x.Turns = append(x.Turns, shown)
	}
}

// numbers returns the values of the file with five digits, which suffice for float32.
func numbers[F float32 | float64](x []F) []number {
	list := make([]number, len(x))
	for i, v := range x {
		exact, _ := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', 5, 64), 64)
		list[i] = number(exact)
	}
	return list
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

// tokenizer loads the tokenizer of the newest checkpoint, or else of model.path. It
// returns nil if neither can be loaded; the page then shows whole responses.
func (r *Run) tokenizer() *tokenize.Tokenizer {
	dirs := files.Glob(r.Dir, "checkpoints/step-*")
	slices.Reverse(dirs)
	path := r.Config["model.path"]
	if path != "" && path != data.Arithmetic {
		dirs = append(dirs, path)
	}
	for _, dir := range dirs {
		if t, err := tokenize.Load(dir); err == nil {
			return t
		}
	}
	if path != data.Arithmetic {
		return nil
	}
	t, _ := tokenize.LoadFS(data.ArithmeticModel())
	return t
}

// readRollouts reads the graded responses of a rollouts file. It ignores a last line
// without a newline, which a running process may still be writing.
func readRollouts(path string) ([]rolloutLine, error) {
	var lines []rolloutLine
	groups := map[[2]string]int{} // the newest group of each problem and prompt, which may come twice in a round
	var heads []rolloutLine       // the first line of each group
	err := files.EachLine(path, maxLine, func(text []byte) error {
		var l rolloutLine
		if err := strict.JSON(text, &l); err != nil {
			return err
		}
		if err := l.Turns.Check(len(l.IDs)); err != nil {
			return err
		}
		// The lines of a group share one prompt, which only the first may have.
		key := [2]string{l.Problem, l.Prompt}
		group, ok := groups[key]
		l.group = group
		if !ok || l.Sample == 0 && !l.Part { // a group begins with sample 0
			l.group, groups[key] = len(heads), len(heads)
			heads = append(heads, l)
		} else {
			l.PromptText, l.PromptIDs = heads[l.group].PromptText, heads[l.group].PromptIDs
		}
		if !l.Skipped {
			lines = append(lines, l)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("report: %w", err)
	}
	return lines, err
}

// A number has four significant digits in JSON. NaN and infinities, which JSON cannot represent, are null.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) { return appendNumber(nil, float64(n)), nil }
