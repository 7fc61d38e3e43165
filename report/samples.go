package report

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

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

// readSamples returns the first responses to the first problems of a round. It returns
// none if the folder run has no file of the round.
func readSamples(run string, round int) ([]text, error) {
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
	var texts []text
	for number := 1; len(texts) < samples; number++ {
		line, err := in.ReadBytes('\n')
		if err != nil { // the end of the file, or of the part that is read
			break
		}
		var s rundir.RolloutLine
		if err := strict.JSON(line, &s); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, number, err)
		}
		if s.Sample == 0 && !s.Part {
			texts = append(texts, text{fmt.Sprintf("samples/%d", len(texts)+1), markdown(&s, round)})
		}
	}
	return texts, nil
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
	out := block(facts) + "**Prompt**\n\n" + block(cmp.Or(s.PromptText, s.Prompt))
	if s.Turns == nil {
		return out + "**Response**\n\n" + block(s.Response)
	}
	for size, i := 0, 0; i < len(s.Turns) && size < sampleBytes; i++ {
		t := s.Turns[i]
		size += len(t.Text)
		head := map[bool]string{true: "Policy", false: "Environment"}[t.Author == rundir.Policy]
		if t.Reward != nil {
			head += fmt.Sprintf(", reward %.4g", *t.Reward)
		}
		out += "**" + head + "**\n\n" + block(t.Text)
	}
	return out
}

var newlines = strings.NewReplacer("\r\n", "\n    ", "\r", "\n    ", "\n", "\n    ")

// block returns a text as an indented block of Markdown.
func block(text string) string {
	return "    " + newlines.Replace(strings.ToValidUTF8(cut(text, sampleBytes), "\uFFFD")) + "\n\n"
}
