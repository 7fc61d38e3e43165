// Package texts finds the answer in a response and compares texts, for rewards that need
// no mathematics. The answer depends on the response alone, never on the accepted
// answers, so a response states one answer.
package texts

import (
	"regexp"
	"slices"
	"strings"

	"onering/internal/settings"
)

// An Extract says where in a response the answer stands. Rewards embed it and have its
// fields as settings.
type Extract struct {
	Where string `toml:"extract" choice:"whole last_line boxed tag" note:"boxed is the last complete \\boxed{} or \\fbox{}, tag the last complete <answer>...</answer>" help:"what of a response is its answer"`
	Tag   string `toml:"tag" needs:"extract=tag" help:"name of the tag for extract = \"tag\""`
	After string `toml:"after" help:"a mark such as </think> or ####: only what follows the last of them counts, and a response without one has no answer"`
}

var tagName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// Validate reports an impossible tag as a *settings.Error.
func (e Extract) Validate() error {
	if !tagName.MatchString(e.Tag) {
		return &settings.Error{Key: "tag", Value: e.Tag, Remedy: "must be the name of a tag, such as answer"}
	}
	return nil
}

// Find returns the answer that a response states, and whether there is one: white space
// is not an answer. It reads every byte a fixed number of times.
func (e Extract) Find(response string) (string, bool) {
	s, ok := e.Rest(response)
	switch {
	case !ok:
	case e.Where == "last_line":
		s = lastLine(s)
	case e.Where == "boxed":
		boxes := slices.DeleteFunc(Boxes(s), func(b box) bool { return !b.Closed })
		s = ""
		if len(boxes) > 0 {
			s = boxes[len(boxes)-1].Content // the innermost one, if boxes are nested
		}
	case e.Where == "tag":
		s = lastTag(s, e.Tag)
	}
	return s, strings.TrimSpace(s) != ""
}

// Rest returns the text after the last mark of a response, the whole text if no mark is
// set, and whether the mark was found.
func (e Extract) Rest(response string) (string, bool) {
	if e.After == "" {
		return response, true
	}
	at := strings.LastIndex(response, e.After)
	if at < 0 {
		return "", false
	}
	return response[at+len(e.After):], true
}

// lastLine returns the last line that is not blank, "" if there is none.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexAny(s, "\n\r")+1:])
}

// lastTag returns the text between <name> and the last </name>, "" if there is no such
// pair. Among several <name> the last one counts.
func lastTag(s, name string) string {
	end := strings.LastIndex(s, "</"+name+">")
	if end < 0 {
		return ""
	}
	start := strings.LastIndex(s[:end], "<"+name+">")
	if start < 0 {
		return ""
	}
	return s[start+len(name)+2 : end]
}

// A box is a \boxed{...} or \fbox{...}.
type box struct {
	Start, End int    // of the box, from the backslash to behind the brace
	Content    string // the text between the braces
	Closed     bool   // false if the closing brace is missing; the box then ends with the text
}

// Boxes returns the boxes of s in the order in which they begin. Braces behind a
// backslash do not count. It reads s once.
func Boxes(s string) []box {
	var boxes []box
	var open []int // for each open brace the index of its box, or -1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{':
			open = append(open, -1)
		case '}':
			if len(open) == 0 {
				break
			}
			if at := open[len(open)-1]; at >= 0 {
				b := &boxes[at]
				begin := len(s) - len(b.Content) // so far the content is all that follows the brace
				b.Content, b.End, b.Closed = s[begin:i], i+1, true
			}
			open = open[:len(open)-1]
		case '\\':
			n := boxCommand(s[i:])
			if n == 0 && boxCommand(s[min(i+1, len(s)):]) > 0 {
				break // \\boxed, as models write after a line break: the second backslash begins a box
			}
			if n == 0 {
				i++ // an escaped character
				break
			}
			open = append(open, len(boxes))
			boxes = append(boxes, box{Start: i, End: len(s), Content: s[i+n:]})
			i += n - 1
		}
	}
	return boxes
}

// boxCommand returns the length of the box command with which s begins, including its
// brace and at most 8 spaces before it; 0 if there is none.
func boxCommand(s string) int {
	for _, command := range [...]string{`\boxed`, `\fbox`} {
		rest, ok := strings.CutPrefix(s, command)
		if !ok {
			continue
		}
		spaces := 0
		for spaces < min(8, len(rest)) && strings.IndexByte(" \t\n\r", rest[spaces]) >= 0 {
			spaces++
		}
		if spaces < len(rest) && rest[spaces] == '{' {
			return len(command) + spaces + 1
		}
	}
	return 0
}
