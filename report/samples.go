package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mattn/go-runewidth"

	"onering/internal/files"
	"onering/internal/strict"
	"onering/train/rundir"
)

// Limits on the samples of a round.
const (
	samples     = 4       // number of responses, each to another problem
	sampleBytes = 4000    // bytes of a prompt and of a response
	readBytes   = 4 << 20 // bytes of a rollouts file that are read
)

// readSamples returns the first response to each of the first problems of a round, at most so many. Of
// an episode it is the last segment. It returns none if the folder run has no file of the round.
func readSamples(run string, round, most int) (list []rundir.RolloutLine, err error) {
	path := filepath.Join(run, "rollouts", fmt.Sprintf("round-%05d.jsonl", round))
	f, err := files.OpenIn(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReader(io.LimitReader(f, readBytes))
	for number := 1; len(list) < most; number++ {
		line, err := in.ReadBytes('\n')
		if err != nil { // the end of the file, or of the part that is read
			break
		}
		var s rundir.RolloutLine
		if err := strict.JSON(line, &s); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, number, err)
		}
		if s.Sample == 0 && !s.Part { // a Part is an earlier segment of an episode
			list = append(list, s)
		}
	}
	return list, nil
}

// A samplesLine is the line that a program for the metrics gets after that of a round: a table of responses.
type samplesLine struct {
	Kind    string   `json:"kind"` // "samples"
	Round   int      `json:"round"`
	Step    int      `json:"step"`
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

// samplesOf returns the line that follows a line of metrics.jsonl; nil unless that is of a round
// with responses.
func samplesOf(run string, metrics []byte) ([]byte, error) {
	if !bytes.HasPrefix(metrics, []byte(`{"kind":"round",`)) {
		return nil, nil
	}
	table := samplesLine{Columns: []string{"problem", "prompt", "response", "reward", "answer", "expected"}}
	if err := json.Unmarshal(metrics, &table); err != nil { // its round and step
		return nil, err
	}
	list, err := readSamples(run, table.Round, samples)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	for _, s := range list {
		table.Rows = append(table.Rows, []any{s.Problem, cmp.Or(s.PromptText, s.Prompt), s.Response, s.Reward, s.Answer, strings.Join(s.Answers, " or ")})
	}
	table.Kind = "samples"
	return jsonLine(table)
}

// glanceWidth is how many columns of the terminal a prompt or a response may take.
const glanceWidth = 300

// glance shows a response in three lines for people: the end of its prompt, and its beginning.
func glance(s *rundir.RolloutLine, round int) string {
	prompt := printable(cmp.Or(s.PromptText, s.Prompt))
	if width := runewidth.StringWidth(prompt); width > glanceWidth {
		prompt = runewidth.TruncateLeft(prompt, width-glanceWidth+1, "…")
	}
	reward := "no reward"
	if s.Reward != nil {
		reward = fmt.Sprintf("reward %.4g", *s.Reward)
	}
	return fmt.Sprintf("a response of round %d: %s, answer %q, expected %q\n  prompt    %s\n  response  %s",
		round, reward, s.Answer, strings.Join(s.Answers, " or "), prompt, runewidth.Truncate(printable(s.Response), glanceWidth, "…"))
}

// markdown shows a sample. Text from the run stands in indented blocks, in which Markdown
// and HTML have no effect.
func markdown(s *rundir.RolloutLine, round int) string {
	facts := fmt.Sprintf("round %d, problem %s\nreward ", round, s.Problem)
	if s.Reward == nil {
		facts += "none"
	} else {
		facts += fmt.Sprint(*s.Reward)
	}
	if s.Right != nil {
		facts += map[bool]string{true: ", right", false: ", wrong"}[*s.Right]
	}
	facts += fmt.Sprintf(", advantage %.4g\nanswer %s, expected %s", s.Advantage, s.Answer, strings.Join(s.Answers, " or "))
	out := indented(facts) + "**Prompt**\n\n" + indented(cmp.Or(s.PromptText, s.Prompt))
	if s.Turns == nil {
		return out + "**Response**\n\n" + indented(s.Response)
	}
	for size, i := 0, 0; i < len(s.Turns) && size < sampleBytes; i++ {
		t := s.Turns[i]
		size += len(t.Text)
		head := map[bool]string{true: "Policy", false: "Environment"}[t.Author == rundir.Policy]
		if t.Reward != nil {
			head += fmt.Sprintf(", reward %.4g", *t.Reward)
		}
		out += "**" + head + "**\n\n" + indented(t.Text)
	}
	return out
}

var newlines = strings.NewReplacer("\r\n", "\n    ", "\r", "\n    ", "\n", "\n    ")

// indented returns a text as an indented block of Markdown.
func indented(text string) string {
	return "    " + newlines.Replace(strings.ToValidUTF8(shorten(text, sampleBytes), "\uFFFD")) + "\n\n"
}
