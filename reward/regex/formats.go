package regex

import (
	"encoding/json"
	"fmt"
	"strings"

	"onering/reward"
	"onering/reward/texts"
)

// format says what is wrong with the format of a response, "" if nothing is. s is the part of its
// last turn that counts, behind the text of the setting after. Thoughts and boxes in earlier turns
// of an episode count, too.
func (r *rule) format(of reward.Sample, s string) string {
	thinks := r.Format == "think" || r.Format == "think_answer" || r.Format == "auto" && r.Pattern == ""
	opened, earlier := "", ""
	if strings.HasSuffix(strings.TrimSpace(of.Prompt), "<think>") { // a template such as r1 begins with the tag
		opened = "<think>"
	}
	for i, turn := range of.Earlier {
		if _, reason := think(opened + turn.Text); thinks && reason != "" {
			return fmt.Sprintf("turn %d: %s", i+1, reason)
		}
		earlier += turn.Text + "\n"
	}
	switch {
	case r.Format == "think_answer":
		return thinkAnswer(opened + s)
	case thinks:
		_, reason := think(opened + s)
		return reason
	case r.Format == "boxed":
		return oneBox(earlier + s)
	case r.Format == "json":
		return jsonWith(s, r.Keys)
	}
	return ""
}

// cutAtOnly returns the text before and after the only tag in s.
func cutAtOnly(s, tag string) (before, after, reason string) {
	if n := strings.Count(s, tag); n != 1 {
		return "", "", fmt.Sprintf("%d times %s, not once", n, tag)
	}
	before, after, _ = strings.Cut(s, tag)
	return before, after, ""
}

// think wants s to begin with <think>...</think> and to continue; it returns the text
// after it.
func think(s string) (answer, reason string) {
	before, _, reason := cutAtOnly(s, "<think>")
	if reason != "" {
		return "", reason
	}
	thoughts, answer, reason := cutAtOnly(s, "</think>")
	switch {
	case reason != "":
		return "", reason
	case strings.TrimSpace(before) != "":
		return "", "text before <think>"
	case !strings.Contains(thoughts, "<think>"):
		return "", "</think> before <think>"
	case strings.TrimSpace(answer) == "":
		return "", "nothing after </think>"
	}
	return answer, ""
}

// thinkAnswer wants s to be <think>...</think> <answer>...</answer>, with white
// space between and around them, and something in the second.
func thinkAnswer(s string) string {
	rest, reason := think(s)
	if reason != "" {
		return reason
	}
	for _, tag := range [...]string{"<answer>", "</answer>"} {
		if _, _, reason = cutAtOnly(s, tag); reason != "" {
			return reason
		}
	}
	before, rest, _ := strings.Cut(rest, "<answer>")
	answer, after, closed := strings.Cut(rest, "</answer>")
	switch {
	case strings.TrimSpace(before) != "" || strings.TrimSpace(after) != "":
		return "text outside the tags"
	case !closed:
		return "no <answer>...</answer> after the thoughts"
	case strings.TrimSpace(answer) == "":
		return "nothing in <answer>"
	}
	return ""
}

// oneBox wants one box in s, closed and with something in it.
func oneBox(s string) string {
	boxes := texts.Boxes(s)
	switch {
	case len(boxes) != 1:
		return fmt.Sprintf("%d boxes, not one", len(boxes))
	case !boxes[0].Closed:
		return "the box is not closed"
	case strings.TrimSpace(boxes[0].Content) == "":
		return "the box is empty"
	}
	return ""
}

// jsonWith wants s, or the only fenced block in it, to be JSON, and an object with
// keys if there are any.
func jsonWith(s string, keys []string) string {
	text := []byte(strings.TrimSpace(s))
	if !json.Valid(text) {
		block, ok := fenced(s)
		if text = []byte(block); !ok || !json.Valid(text) {
			return "neither the response nor one fenced block in it is JSON"
		}
	}
	if len(keys) == 0 {
		return ""
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return "the JSON is not an object"
	}
	for _, key := range keys {
		if _, ok := object[key]; !ok {
			return fmt.Sprintf("the object has no key %q", key)
		}
	}
	return ""
}

// fenced returns the text between the two lines of s that begin with ```, if there are
// two and the first names no language other than JSON.
func fenced(s string) (block string, ok bool) {
	var b strings.Builder
	fences := 0
	for line := range strings.Lines(s) {
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case !fence && fences == 1:
			b.WriteString(line)
		case !fence:
		case fences == 0 && info != "" && !strings.EqualFold(info, "json"), fences == 1 && info != "", fences == 2:
			return "", false // another language, a second opening, or a second block
		default:
			fences++
		}
	}
	return b.String(), fences == 2
}
