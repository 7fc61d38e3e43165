package report

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"onering/train/metrics"
	"onering/train/rundir"
)

// View reads the run in a folder and draws it as text of at most width columns and
// height lines. done is true if all rounds of the run are finished.
func View(dir string, width, height int) (text string, done bool, err error) {
	r, err := ReadRun(dir)
	if err != nil {
		return "", false, err
	}
	samples, err := r.Newest(1)
	if err != nil {
		return "", false, err
	}
	rounds, _ := strconv.Atoi(r.Config["train.rounds"])
	return draw(r, samples, rounds, width, height), r.Finished(), nil
}

// Follow draws the view on a terminal again and again, until the run is finished or ctx ends.
func Follow(ctx context.Context, out *os.File, dir string) error {
	const (
		home  = "\x1b[H"
		clear = "\x1b[2J"
		toEnd = "\x1b[J"
		enter = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
		leave = "\x1b[?25h\x1b[?1049l"
	)
	fmt.Fprint(out, enter, clear)
	last := ""
	// The last view stays in the terminal.
	defer func() { fmt.Fprint(out, leave, last) }()
	var size int64 = -1   // of metrics.jsonl when the view was drawn last; -1 before
	var width, height int // of the terminal then
	for {
		var grown int64
		if info, err := os.Stat(filepath.Join(dir, "metrics.jsonl")); err == nil {
			grown = info.Size()
		}
		w, h := 80, 24
		if a, b, err := term.GetSize(int(out.Fd())); err == nil {
			w, h = a, b
		}
		wait := time.Second
		if grown != size || w != width || h != height {
			began := time.Now()
			text, done, err := View(dir, w, h-1) // the shell's prompt needs a line
			if err != nil {
				return err
			}
			size, width, height, last = grown, w, h, text
			// Clear each line to its end, where a longer line may have been. A newline
			// after the last line would scroll a full screen.
			fmt.Fprint(out, home, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\x1b[K\r\n"), "\x1b[K", toEnd)
			if done {
				return nil
			}
			wait = max(wait, 10*time.Since(began)) // reading a long run takes time, so it is read less often
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Finished says whether the run has nothing more to do.
func (r *Run) Finished() bool {
	rounds, _ := strconv.Atoi(r.Config["train.rounds"])
	return rounds > 0 && r.Rounds.Len() >= rounds || r.Early != ""
}

// shownMetrics are the metrics that a view shows, one per line.
var shownMetrics = []struct{ name, label string }{
	{"grad_norm", "grad norm"}, {"p/mean", "p"}, {"p/share_at_max", "at p_max"}, {"clip_fraction", "f"},
	{"log_ratio/mean", "log ratio"}, {"entropy", "entropy"}, {"response_length/mean", "length"}, {"truncated_share", "truncated"}, {"no_answer_share", "no answer"},
}

// besideReward are the metrics of episodes that the line of the reward also shows.
var besideReward = []struct{ name, label string }{{"turns/mean", "turns"}, {"environment/failed", "episodes failed"}}

// labelWidth is the number of columns that a metric's name and value take.
const labelWidth = 24

// A layout sets how much of a run a view shows.
type layout struct {
	chartLines  int  // lines that the reward's curve takes
	meters      bool // one line with a bar for each phase, instead of one line for all phases
	spacious    bool // empty lines between the parts
	sampleLines int  // lines that a prompt and its response take
	mostItems   int  // largest number of suites, and of metrics; 0 is all
}

// layouts are sorted from the most detail to the least. draw chooses the first one that fits into the terminal.
var layouts = []layout{
	{8, true, true, 5, 0}, {6, true, true, 3, 0}, {5, false, true, 3, 0}, {4, false, false, 3, 0},
	{4, false, false, 2, 0}, {3, false, false, 2, 0}, {3, false, false, 2, 5}, {3, false, false, 1, 3},
}

// draw draws a run as text of at most width columns and height lines. rounds is the
// number of rounds that the run will have, 0 if it is unknown.
func draw(r *Run, samples []rolloutView, rounds, width, height int) string {
	width, height = max(1, min(width, 120)), max(1, height)
	var lines []string
	for _, l := range layouts {
		v := view{layout: l, width: width}
		v.draw(r, samples, rounds)
		lines = v.lines
		if len(lines) <= height {
			break
		}
	}
	return strings.Join(lines[:min(len(lines), height)], "\n") + "\n"
}

// A view collects the lines that show a run in one layout.
type view struct {
	layout
	width int
	lines []string
}

// addLine adds a line, cut to the width of the view.
func (v *view) addLine(format string, args ...any) {
	v.lines = append(v.lines, runewidth.Truncate(printable(fmt.Sprintf(format, args...)), v.width, "…"))
}

// addGap adds an empty line if the layout has gaps.
func (v *view) addGap() {
	if v.spacious {
		v.addLine("")
	}
}

// draw adds all lines of the run.
func (v *view) draw(r *Run, samples []rolloutView, rounds int) {
	v.progress(r, rounds)
	for _, text := range r.Diagnoses {
		v.addText(printable(text), v.sampleLines, false) // no further text belongs to it
	}
	v.addGap()
	if r.Rounds.Len() == 0 {
		v.addLine("no round is finished yet")
		return
	}
	v.rewards(r)
	v.addGap()
	v.metrics(r)
	v.addGap()
	v.phases(r)
	for _, s := range samples {
		v.addGap()
		v.response(s)
	}
}

// progress draws the run's name, how many of its rounds are finished and how long the others will take.
func (v *view) progress(r *Run, rounds int) {
	v.addLine("%s  %s", r.Name, r.Config["objective.name"])
	if rounds <= 0 {
		return
	}
	done, left := r.Rounds.Len(), ""
	if done > 0 && done < rounds {
		_, _, total := r.Seconds()
		left = "  " + metrics.Left(total, done, rounds)
	}
	if r.Early != "" {
		left = "  ended early: " + printable(r.Early)
	}
	v.addLine("round %d/%d  %s%s", done, rounds, meter(float64(done)/float64(rounds), max(4, v.width/3)), left)
}

// rewards draws the curve of the reward and the results of the evaluations.
func (v *view) rewards(r *Run) {
	line := fmt.Sprintf("reward %.3f", r.Rounds.Last("reward"))
	for _, m := range besideReward {
		if x := r.Rounds.Last(m.name); !math.IsNaN(x) {
			line += fmt.Sprintf(", %s %.4g", m.label, x)
		}
	}
	v.addLine("%s", line)
	for _, row := range brailleChart(r.Rounds.Column("reward"), v.width, v.chartLines) {
		v.addLine("%s", row)
	}
	var scores []string
	for _, name := range r.Evals.Names {
		suite, ok := strings.CutSuffix(name, "/pass@1")
		if !ok || len(scores) == v.mostItems && v.mostItems > 0 { // 0 is all
			continue
		}
		suite, first, last := strings.TrimPrefix(suite, "eval/"), 100*r.Evals.First(name), 100*r.Evals.Last(name)
		switch {
		case r.Evals.Len() < 2:
			scores = append(scores, fmt.Sprintf("%s pass@1 %.1f %% before training", suite, first))
		case v.spacious:
			scores = append(scores, fmt.Sprintf("%s pass@1 %.1f %%, before training %.1f %%", suite, last, first))
		default:
			scores = append(scores, fmt.Sprintf("%s pass@1 %.1f %% (was %.1f)", suite, last, first))
		}
	}
	if !v.spacious {
		v.addItems(scores)
		return
	}
	for _, s := range scores {
		v.addLine("%s", s)
	}
}

// addItems draws as many items in each line as fit.
func (v *view) addItems(list []string) {
	row := ""
	for _, item := range list {
		if row != "" && runewidth.StringWidth(row+", "+item) >= v.width {
			v.addLine("%s,", row)
			row = ""
		}
		if row != "" {
			row += ", "
		}
		row += item
	}
	if row != "" {
		v.addLine("%s", row)
	}
}

// metrics draws those of shownMetrics that the run has.
func (v *view) metrics(r *Run) {
	shown := 0
	for _, m := range shownMetrics {
		column := r.Rounds.Column(m.name)
		if len(column) == 0 || math.IsNaN(r.Rounds.Last(m.name)) || shown == v.mostItems && v.mostItems > 0 {
			continue
		}
		shown++
		v.addLine("%-10s %10.4g  %s", m.label, r.Rounds.Last(m.name), sparkline(column, v.width-labelWidth))
	}
}

// phases draws the share of the time that each phase of a round takes, for phases of at least 1 %.
func (v *view) phases(r *Run) {
	phases, seconds, total := r.Seconds()
	var shares []string
	for _, p := range phases {
		share := seconds[p] / total
		switch {
		case !(share >= 0.01): // or NaN, where no phase took time
		case v.meters && v.width >= 2*labelWidth:
			v.addLine("%-10s %8.0f %%  %s", p, 100*share, meter(share, v.width-labelWidth))
		default:
			shares = append(shares, fmt.Sprintf("%s %.0f %%", p, 100*share))
		}
	}
	v.addItems(shares)
}

// response draws the end of a prompt and the beginning of a response to it, turn by turn, below a line
// of facts, in as many lines as the layout has for a sample.
func (v *view) response(s rolloutView) {
	v.addLine("round %d, %s, answer %s, expected %s", s.Round, s.Verdict, s.Answer, strings.Join(s.Gold, " or "))
	lines := v.sampleLines // that remain
	if lines > 1 {
		prompt := printable(strings.TrimSpace(s.Prompt))
		if over := runewidth.StringWidth(prompt) - v.width; over > 0 {
			prompt = runewidth.TruncateLeft(prompt, over+1, "…")
		}
		v.addLine("%s", prompt)
		lines--
	}
	turns := s.Turns
	if turns == nil {
		turns = []turn{{Author: rundir.Policy, To: len(s.Tokens)}} // one, the whole response
	}
	for i, t := range turns {
		text := strings.Join(s.Tokens[t.From:t.To], "")
		if t.Author == rundir.Environment {
			v.addLine("  %s answers %s", t.Author, strings.TrimSpace(text))
			if lines == 1 {
				return
			}
			lines--
			continue
		}
		if t.Reward != nil {
			text = fmt.Sprintf("[%.4g] %s", *t.Reward, text)
		}
		if lines = v.addText(printable(strings.TrimSpace(text)), lines, i < len(turns)-1); lines == 0 { // the last argument says that more turns follow
			return
		}
	}
}

// addText draws a text in at most so many lines, and returns how many lines remain. The last
// line says whether words, or text after them, are left out.
func (v *view) addText(text string, lines int, more bool) (left int) {
	for ; text != "" && lines > 0; lines-- {
		row := firstWords(text, v.width)
		if lines == 1 && (row != text || more) {
			row = firstWords(text, v.width-1) + "…"
		}
		v.addLine("%s", row)
		text = strings.TrimLeft(strings.TrimPrefix(text, row), " ")
	}
	return lines
}

// firstWords returns the words at the beginning of a text that fit into a line of that
// width, or a part of the first one if it does not.
func firstWords(text string, width int) string {
	row := runewidth.Truncate(text, width, "")
	if len(row) == len(text) || text[len(row)] == ' ' {
		return row
	}
	if space := strings.LastIndexByte(row, ' '); space > 0 {
		return row[:space]
	}
	if row == "" {
		return text // not even one character fits; addLine cuts it
	}
	return row
}

// printable replaces characters that cannot be printed, such as those that move the cursor, by spaces.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
