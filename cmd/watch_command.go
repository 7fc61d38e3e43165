package cmd

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"onering/report"
)

func newWatch() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:   "watch RUN",
		Short: "Follow a run in the terminal",
		Long: `Show how a run goes: the reward, what the optimizer steps look like, where
the time goes and a sampled response. The view is drawn anew when the run has
gone on, until the run is through or Ctrl-C. The run itself is not touched.

Where stdout is no terminal, or a dumb one, the view is printed once.`,
		Example: `  onering watch runs/out/pmpo-20260102-030405
  onering watch --once RUN`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			out := c.OutOrStdout()
			f, ok := out.(*os.File)
			if once || !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
				text, _, err := viewRun(args[0], 80, math.MaxInt)
				if err != nil {
					return err
				}
				_, err = io.WriteString(out, text)
				return err
			}
			return followRun(c, f, args[0])
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print the view once")
	return c
}

// followRun draws the view until the run is through or a signal comes.
func followRun(c *cobra.Command, out *os.File, dir string) error {
	ctx, _, stop := catchSignals(c.Context())
	defer stop()
	const (
		home  = "\x1b[H"
		clear = "\x1b[2J"
		toEnd = "\x1b[J"
		enter = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
		leave = "\x1b[?25h\x1b[?1049l"
	)
	fmt.Fprint(out, enter, clear)
	last := ""
	// The last view stays in the terminal.
	defer func() { fmt.Fprint(out, leave, last) }()
	var size int64 = -1
	var width, height int
	for {
		grown, w, h := metricsSize(dir), 80, 24
		if a, b, err := term.GetSize(int(out.Fd())); err == nil {
			w, h = a, b
		}
		wait := time.Second
		if grown != size || w != width || h != height {
			began := time.Now()
			text, done, err := viewRun(dir, w, h)
			if err != nil {
				return err
			}
			size, width, height, last = grown, w, h, text
			// Leftovers of longer lines: clear each to its end. An end of the last
			// line would scroll a full screen.
			fmt.Fprint(out, home, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\x1b[K\r\n"), "\x1b[K", toEnd)
			if done {
				return nil
			}
			wait = max(wait, 10*time.Since(began)) // a long run takes a while to read
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func metricsSize(dir string) int64 {
	info, err := os.Stat(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// viewRun reads a run and draws it; done says that all its rounds are through.
func viewRun(dir string, width, height int) (text string, done bool, err error) {
	r, err := report.ReadRun(dir)
	if err != nil {
		return "", false, err
	}
	samples, err := r.Newest(1)
	if err != nil {
		return "", false, err
	}
	rounds, _ := strconv.Atoi(r.Config["train.rounds"])
	return drawRun(r, samples, rounds, width, height), rounds > 0 && r.Rounds.Len() >= rounds, nil
}

// watched are the metrics of the view, one line each.
var watched = []struct{ name, label string }{
	{"grad_norm", "grad norm"}, {"p/mean", "p"}, {"p/share_at_max", "at p_max"}, {"clip_fraction", "f"},
	{"log_ratio/mean", "log ratio"}, {"entropy", "entropy"}, {"response_length/mean", "length"}, {"truncated_share", "truncated"},
}

// A layout is how much of a run a view shows.
type layout struct {
	chart  int  // lines of the reward's curve
	meters bool // a bar for each phase, not one line for all
	gaps   bool // empty lines between the parts
	sample int  // lines of the response
}

// layouts from the most to the least that a view shows. A terminal gets the first
// that fits.
var layouts = []layout{
	{8, true, true, 4}, {6, true, true, 2}, {5, false, true, 2}, {4, false, false, 2}, {3, false, false, 1},
}

// drawRun draws a run as text of at most width columns and height lines.
func drawRun(r *report.Run, samples []report.Rollout, rounds, width, height int) string {
	width, height = max(1, min(width, 120)), max(1, height)
	var lines []string
	for _, l := range layouts {
		lines = l.draw(r, samples, rounds, width)
		if len(lines) <= height {
			break
		}
	}
	return strings.Join(lines[:min(len(lines), height)], "\n") + "\n"
}

func (l layout) draw(r *report.Run, samples []report.Rollout, rounds, width int) (lines []string) {
	line := func(format string, args ...any) {
		lines = append(lines, runewidth.Truncate(printable(fmt.Sprintf(format, args...)), width, "…"))
	}
	gap := func() {
		if l.gaps {
			line("")
		}
	}
	done := r.Rounds.Len()
	_, seconds, total := r.Seconds()
	line("%s  %s", r.Name, r.Config["objective.name"])
	if rounds > 0 {
		left := ""
		if done > 0 && done < rounds {
			left = fmt.Sprintf("  %s left", time.Duration(total/float64(done)*float64(rounds-done)*float64(time.Second)).Round(time.Second))
		}
		line("round %d/%d  %s%s", done, rounds, meter(float64(done)/float64(rounds), max(4, width/3)), left)
	}
	gap()
	if done == 0 {
		line("no round is through as yet")
		return lines
	}
	line("reward %.3f", r.Rounds.Last("reward"))
	for _, row := range brailleChart(r.Rounds.Column("reward"), width, l.chart) {
		line("%s", row)
	}
	for _, name := range r.Evals.Names() {
		if suite, ok := strings.CutSuffix(name, "/pass@1"); ok {
			suite, first, last := strings.TrimPrefix(suite, "eval/"), 100*r.Evals.First(name), 100*r.Evals.Last(name)
			if r.Evals.Len() < 2 {
				line("%s pass@1 %.1f %% before training", suite, first)
			} else {
				line("%s pass@1 %.1f %%, before training %.1f %%", suite, last, first)
			}
		}
	}
	gap()
	const labels = 24 // columns of a name and a number
	for _, m := range watched {
		column := r.Rounds.Column(m.name)
		if len(column) == 0 || math.IsNaN(r.Rounds.Last(m.name)) {
			continue
		}
		line("%-10s %10.4g  %s", m.label, r.Rounds.Last(m.name), sparkline(column, width-labels))
	}
	gap()
	phases, _, _ := r.Seconds()
	var shares []string
	for _, p := range phases {
		share := seconds[p] / total
		switch {
		case share < 0.01:
		case l.meters && width >= 2*labels:
			line("%-10s %8.0f %%  %s", p, 100*share, meter(share, width-labels))
		default:
			shares = append(shares, fmt.Sprintf("%s %.0f %%", p, 100*share))
		}
	}
	if len(shares) > 0 {
		line("%s", strings.Join(shares, ", "))
	}
	for _, s := range samples {
		verdict := "wrong"
		if s.Reward > 0 {
			verdict = "right"
		}
		gap()
		line("round %d, %s, answer %s, expected %s", s.Round, verdict, s.Answer, strings.Join(s.Gold, " or "))
		text := printable(s.Prompt + strings.Join(s.Tokens, ""))
		for n := 1; text != "" && n <= l.sample; n++ {
			row := runewidth.Truncate(text, width, "")
			if row == "" || n == l.sample {
				row = text // line cuts it
			}
			line("%s", row)
			text = text[len(row):]
		}
	}
	return lines
}

// printable makes one line of a text, without what could move the cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
