package sweep

import (
	"fmt"
	"strings"
)

// replaceBlock replaces the text between the lines
//
//	<!-- NAME -->
//	<!-- end -->
//
// of a Markdown page by the result of edit. It returns an error if the page lacks these
// lines.
func replaceBlock(text, name string, edit func(block string) string) (string, error) {
	begin := "<!-- " + name + " -->\n"
	from := strings.Index(text, begin)
	if from < 0 {
		return text, fmt.Errorf("variants: the text has no line %q", strings.TrimSpace(begin))
	}
	from += len(begin)
	length := strings.Index(text[from:], "<!-- end -->")
	if length < 0 {
		return text, fmt.Errorf("variants: no line %q after %q", "<!-- end -->", strings.TrimSpace(begin))
	}
	return text[:from] + edit(text[from:from+length]) + text[from+length:], nil
}
