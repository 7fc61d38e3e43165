package cmd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"unicode"

	"onering/data"
	"onering/reward"
	"onering/tokenize"
	"onering/train/rl"
)

// printSummary says what was learned, where the result is and what to type next.
func printSummary(w io.Writer, s rl.Summary, c rl.Config) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch {
	case s.Resumed == 0:
		fmt.Fprintf(t, "trained\t%d rounds, %d steps in %.1f s with %s\n", s.Rounds, s.Steps, s.Seconds, c.Objective.Name)
	case s.Resumed == s.Rounds:
		fmt.Fprintf(t, "trained\t%d rounds, %d steps with %s, all of them before it was resumed\n", s.Rounds, s.Steps, c.Objective.Name)
	default:
		fmt.Fprintf(t, "trained\t%d rounds, %d steps with %s; %.1f s since round %d\n", s.Rounds, s.Steps, c.Objective.Name, s.Seconds, s.Resumed)
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
	if s.LogPGap > 0 { // else none were compared
		fmt.Fprintf(t, "log-probs\trollout and training differ by %.1e at most\n", s.LogPGap)
	}
	fmt.Fprintf(t, "run folder\t%s\n", nearest(s.Folder))
	t.Flush()
	fmt.Fprintf(w, "next\n%s\n", strings.Join(nextCommands(s, c), "\n")) // on lines of their own, to be copied
}

// nearest is the path from the working directory, where that is the shorter one.
func nearest(path string) string {
	here, err := os.Getwd()
	if rel, failed := filepath.Rel(here, path); err == nil && failed == nil && len(rel) < len(path) {
		return rel
	}
	return path
}

// extraction says where the answers had to stand, if that is a setting of the reward.
func extraction(c rl.Config) string {
	if rule := reward.Extract(c.Reward.Rule); rule != "" {
		return " (extract = " + rule + ")"
	}
	return ""
}

// nextCommands returns commands that show what was learned. They take the template and what
// else they need from the run.
func nextCommands(s rl.Summary, c rl.Config) []string {
	model, tokenizer := " --model "+shellQuoted(nearest(s.Folder)), s.Checkpoint
	if c.LoRA.On {
		tokenizer = c.Model.Path
	}
	if c.Data.Train.Is(data.Arithmetic) {
		return []string{`echo '{"prompt":"417+385="}' | onering generate` + model}
	}
	talk := "onering chat" + model
	if c.Model.Template != "chat" && !(c.Model.Template == tokenize.DefaultTemplate && canChat(tokenizer)) {
		prompt := "What is 1+1?"
		if c.Model.Path == data.Arithmetic { // has no letters in its vocabulary
			prompt = "1+1="
		}
		talk = `echo '{"prompt":"` + prompt + `"}' | onering generate` + model
	}
	next := []string{talk}
	if len(c.Eval.Suites) > 0 {
		next = append(next, "onering eval"+model) // of the run's suites
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
