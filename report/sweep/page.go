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
// of a Markdown page by block. It returns an error if the page lacks these lines.
func replaceBlock(text, name, block string) (string, error) {
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
	return text[:from] + block + text[from+length:], nil
}
