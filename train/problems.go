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

// openTraining opens the training problems. Rows that lack a problem or an answer
// are left out; the log names the first of them and says how many there were.
func openTraining(c DataConfig, log *slog.Logger) (data.Problems, error) {
	const named = 5
	o, bad := c.Options(), 0
	o.OnBad = func(err error) {
		if bad++; bad <= named {
			log.Warn("a row is left out", "why", err)
		}
	}
	problems, report, err := data.OpenProblems(c.Train, o, false)
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
	return problems, nil
}
