package cmd

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"unicode"

	"onering/data/arithmetic"
	"onering/internal/cli"
	"onering/reward"
	"onering/tokenize"
	"onering/train/metrics"
	"onering/train/rl"
)

// A watcher shows how a run goes: a progress bar for what is under way, and lines. It
// implements metrics.Observer.
type watcher struct {
	metrics.Unobserved
	stderr io.Writer
	quiet  bool
	log    *cli.LogFile
	bar    *cli.Progress
}

// Begin implements metrics.Observer.
func (w *watcher) Begin(phase, units string, total int) {
	w.close()
	w.bar = cli.StartProgress(w.stderr, w.quiet, phase, units, int64(total))
}

// Advance implements metrics.Observer.
func (w *watcher) Advance(n int) {
	if w.bar != nil {
		w.bar.Add(int64(n))
	}
}

// Say implements metrics.Observer: a bar that is not at its end goes on below the line.
func (w *watcher) Say(line string) {
	if w.bar != nil && !w.bar.AtEnd() {
		w.above(line)
	} else {
		w.line(line)
	}
}

// above prints a line and shows the same progress bar below it.
func (w *watcher) above(text string) {
	bar := w.bar
	w.line(text)
	if bar != nil {
		w.bar = bar.Again()
	}
}

// line prints a line and adds it to the log file.
func (w *watcher) line(text string) {
	w.close()
	w.log.Print(text)
	if !w.quiet {
		fmt.Fprintln(w.stderr, text)
	}
}

func (w *watcher) close() {
	if w.bar != nil {
		w.bar.Finish()
		w.bar = nil
	}
}

// A summary is what "train --json" prints.
type summary struct {
	Folder     string       `json:"folder"`
	Checkpoint string       `json:"checkpoint"`
	Rounds     int          `json:"rounds"`
	Steps      int          `json:"steps"`
	Resumed    int          `json:"resumed,omitempty"` // rounds that were done when the run was last resumed
	Seconds    float64      `json:"seconds"`           // since it began or was last resumed
	Reward     []float64    `json:"reward,omitempty"`  // means of the first and the last round
	LogPGap    float64      `json:"logp_gap_max"`
	Suites     []suiteScore `json:"suites,omitempty"`
}

// A suiteScore is pass@1 on held-out problems before and after.
type suiteScore struct {
	Suite    string   `json:"suite"`
	Problems int      `json:"problems,omitempty"` // 0 if the run was finished before it was resumed
	Before   *float64 `json:"before,omitempty"`   // nil if there was no evaluation before the training
	After    float64  `json:"after"`
}

func summarize(s rl.Summary) summary {
	out := summary{
		Folder: s.Folder, Checkpoint: s.Checkpoint, Rounds: s.Rounds, Steps: s.Steps, Resumed: s.Resumed,
		Seconds: s.Seconds, LogPGap: s.LogPGap,
	}
	if !math.IsNaN(s.Reward[0]) { // NaN if there was nothing left to do
		out.Reward = s.Reward[:]
	}
	for _, after := range s.Last.Results {
		score := suiteScore{Suite: after.Suite, Problems: after.Problems, After: after.Pass1.Value}
		for _, before := range s.First.Results {
			if before.Suite == after.Suite {
				score.Before = &before.Pass1.Value
			}
		}
		out.Suites = append(out.Suites, score)
	}
	return out
}

// print says what was learned, where the result is and what to type next.
func (s summary) print(w io.Writer, c rl.Config) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch {
	case s.Resumed == 0:
		fmt.Fprintf(t, "trained\t%d rounds, %d steps in %.1f s with %s\n", s.Rounds, s.Steps, s.Seconds, c.Objective.Name)
	case s.Resumed == s.Rounds:
		fmt.Fprintf(t, "trained\t%d rounds, %d steps with %s, all of them before it was resumed\n", s.Rounds, s.Steps, c.Objective.Name)
	default:
		fmt.Fprintf(t, "trained\t%d rounds, %d steps with %s; those after round %d took %.1f s since the run was resumed\n", s.Rounds, s.Steps, c.Objective.Name, s.Resumed, s.Seconds)
	}
	if s.Reward != nil {
		fmt.Fprintf(t, "reward\t%.3f in the first round, %.3f in the last%s\n", s.Reward[0], s.Reward[1], extraction(c))
	}
	for _, x := range s.Suites {
		fmt.Fprintf(t, "%s\tpass@1 ", x.Suite)
		if x.Before != nil {
			fmt.Fprintf(t, "%.1f %% before, %.1f %% after", 100**x.Before, 100*x.After)
		} else {
			fmt.Fprintf(t, "%.1f %%", 100*x.After)
		}
		if x.Problems > 0 {
			fmt.Fprintf(t, ", on %d held-out problems", x.Problems)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "log-probs\trollout and training differ by %.1e at most\n", s.LogPGap)
	fmt.Fprintf(t, "run folder\t%s\n", s.Folder)
	for i, command := range s.next(c) {
		label := "next"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(t, "%s\t%s\n", label, command)
	}
	t.Flush()
}

// extraction says where the answers had to stand, if that is a setting of the reward.
func extraction(c rl.Config) string {
	if rule := reward.Extract(c.Reward.Rule); rule != "" {
		return ", for answers by extract = " + rule
	}
	return ""
}

// next returns commands that show what was learned, with the template of the training.
func (s summary) next(c rl.Config) []string {
	model, tokenizer := " --model "+shellQuoted(s.Checkpoint), s.Checkpoint
	if c.LoRA.On {
		tokenizer = c.Model.Path
		model = " --model " + shellQuoted(c.Model.Path) + " --adapter " + shellQuoted(s.Checkpoint)
	}
	if c.Data.Train.Is(arithmetic.Name) {
		return []string{`echo '{"prompt":"417+385="}' | onering generate` + model}
	}
	talk, template := "onering chat"+model, " --template "+shellQuoted(c.Model.Template)
	if c.Model.Template != "chat" && !(c.Model.Template == tokenize.DefaultTemplate && canChat(tokenizer)) {
		prompt := "What is 1+1?"
		if c.Model.Path == arithmetic.Name { // has no letters in its vocabulary
			prompt = "1+1="
		}
		talk = `echo '{"prompt":"` + prompt + `"}' | onering generate` + model + template
	}
	rest := ""
	if c.Model.System != "" {
		rest += " --system " + shellQuoted(c.Model.System)
	}
	for _, arg := range c.Model.Args {
		rest += " --template-args " + shellQuoted(arg)
	}
	for _, text := range c.Model.Stop {
		rest += " --stop " + shellQuoted(text)
	}
	next := []string{talk + rest}
	if len(c.Eval.Suites) > 0 {
		next = append(next, "onering eval"+model+template+rest+" --suite "+shellQuoted(strings.Join(c.Eval.Suites, ",")))
	}
	return next
}

// canChat reports whether the model in a folder has a chat template.
func canChat(dir string) bool {
	t, err := tokenize.Load(dir)
	return err == nil && t.CheckChat() == nil
}

// shellQuoted puts quotes around a text that a shell would split or expand.
func shellQuoted(text string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:,=@+", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
