package train

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"onering/data"
	"onering/data/arithmetic"
)

// Arithmetic is the name of the embedded task in data.train and eval.suites, and
// of the embedded model in model.path.
const Arithmetic = arithmetic.Name

// openTraining opens the training problems. Rows without a problem or an answer are
// left out; the log names the first of them and says how many there were. So are
// problems whose prompt is too long.
func openTraining(c Config, p *data.Prompter, log *slog.Logger) (data.Problems, error) {
	const named = 5
	o, bad := c.Data.Options(), 0
	o.OnBad = func(err error) {
		if bad++; bad <= named {
			log.Warn("a row is left out", "why", err)
		}
	}
	problems, report, err := data.OpenProblems(c.Data.Train, o, false)
	if err != nil {
		return nil, fmt.Errorf("train: data.train: %w", err)
	}
	if len(report.Files) > 0 {
		level := slog.LevelInfo
		if bad > 0 {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "training problems: "+report.String(),
			"files", len(report.Files), "problem", report.Prompt, "answer", report.Answer, "id", report.ID)
	}
	if len(report.LeftOut) > 0 {
		log.Warn("columns of the training problems take too much memory and are left out; rewards cannot read them", "columns", strings.Join(report.LeftOut, ", "))
	}
	if 2*bad > report.Rows+bad {
		return nil, fmt.Errorf("train: data.train: %d of the %d rows of %s have no problem or no answer in the columns %q and %q: name the columns with data.prompt and data.answer, or choose the rows with data.filter", bad, report.Rows+bad, c.Data.Train, report.Prompt, report.Answer)
	}
	if list, ok := problems.(data.List); ok {
		return dropLong(c, list, p, log)
	}
	return problems, nil
}

// dropLong leaves out problems whose prompt has more than rollout.max_prompt_tokens
// tokens.
func dropLong(c Config, problems data.List, p *data.Prompter, log *slog.Logger) (data.List, error) {
	kept, longest := problems[:0], 0
	for _, q := range problems {
		_, prompt, err := p.Prompt(q)
		if err != nil {
			return nil, err
		}
		longest = max(longest, len(prompt))
		if len(prompt) <= c.Rollout.MaxPromptTokens {
			kept = append(kept, q)
		}
	}
	n := len(problems) - len(kept)
	if 2*n > len(problems) {
		return nil, fmt.Errorf("train: %d of the %d prompts of %s are longer than rollout.max_prompt_tokens = %d: raise it, at most to the longest's %d tokens, or choose the problems with data.filter", n, len(problems), c.Data.Train, c.Rollout.MaxPromptTokens, longest)
	}
	if n > 0 {
		log.Warn("problems with a longer prompt than max_prompt_tokens are left out", "dropped", n, "kept", len(kept), "longest", longest)
	}
	return kept, nil
}
