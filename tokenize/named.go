package tokenize

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"onering/internal/strict"
	"onering/tokenize/jinja"
)

// A templateSource has the chat templates of a folder: one, or several by name.
type templateSource struct {
	plain string
	named map[string]string // nil if there is a single template
}

// UnmarshalJSON reads a text, or a list of templates with their names.
func (s *templateSource) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return strict.JSON(data, &s.plain)
	}
	var list []struct{ Name, Template string }
	if err := strict.JSON(data, &list); err != nil {
		return err
	}
	s.named = make(map[string]string, len(list))
	for _, t := range list {
		s.named[t.Name] = t.Template
	}
	return nil
}

const (
	templateFile   = "chat_template.jinja"
	templateFolder = "additional_chat_templates" // NAME.jinja: the template NAME
	maxTemplates   = 64
)

// readTemplates reads the files with chat templates. They replace found, the templates in
// tokenizer_config.json, even if none of them is the default.
func readTemplates(fsys fs.FS, found templateSource) (templateSource, error) {
	named := map[string]string{}
	entries, err := fs.ReadDir(fsys, templateFolder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".jinja")
		if !ok {
			continue
		}
		if len(named) == maxTemplates {
			return found, fmt.Errorf("%s has more than %d templates", templateFolder, maxTemplates)
		}
		text, err := readFile(fsys, path.Join(templateFolder, e.Name()))
		if err != nil {
			return found, err
		}
		named[name] = string(text)
	}
	text, err := readFile(fsys, templateFile)
	switch {
	case err == nil && len(named) == 0:
		return templateSource{plain: string(text)}, nil
	case err == nil:
		if _, ok := named["default"]; !ok {
			named["default"] = string(text)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return found, err
	}
	if len(named) == 0 {
		return found, nil
	}
	if only, ok := named["default"]; ok && len(named) == 1 {
		return templateSource{plain: only}, nil
	}
	return templateSource{named: named}, nil
}

// template returns the chat templates of a folder.
func (s templateSource) template(tokens map[string]string) *chatTemplate {
	c := &chatTemplate{plain: &templateText{source: s.plain}, tokens: tokens}
	if s.named != nil {
		c.named = make(map[string]*templateText, len(s.named))
	}
	for name, source := range s.named {
		c.named[name] = &templateText{source: source}
	}
	return c
}

// A chatTemplate has the chat templates of a folder.
type chatTemplate struct {
	plain    *templateText
	named    map[string]*templateText // replaces plain, unless nil
	tokens   map[string]string        // bos_token and others that templates name
	reported sync.Map                 // what NewlyUntold has said
}

// choose returns the template for a conversation.
func (c *chatTemplate) choose(chat Conversation) (*templateText, error) {
	asked := chat.Template
	if v, ok := chat.Args.get("chat_template"); ok && asked == "" {
		asked, _ = v.(string)
	}
	names := strings.Join(slices.Sorted(maps.Keys(c.named)), ", ")
	switch {
	case c.named[asked] != nil:
		return c.named[asked], nil
	case strings.Contains(asked, "{"): // the text is a template, not a name
		return &templateText{source: asked}, nil
	case asked != "" && c.named == nil:
		return nil, fmt.Errorf("no chat template is called %.60q: the tokenizer does not name its template", asked)
	case asked != "":
		return nil, fmt.Errorf("no chat template is called %.60q, of %s", asked, names)
	case c.named == nil:
		return c.plain, nil
	case c.named["tool_use"] != nil && chat.Tools.value != nil:
		return c.named["tool_use"], nil
	case c.named["default"] != nil:
		return c.named["default"], nil
	}
	return nil, fmt.Errorf("the tokenizer has chat templates for several uses, %s, and none is called default: name one as chat_template", names)
}

// check parses all templates.
func (c *chatTemplate) check() error {
	if c.named == nil {
		_, err := c.plain.parse()
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		if _, err := c.named[name].parse(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// A templateText is parsed when it is first used: most runs never use it.
type templateText struct {
	source string

	once   sync.Once
	parsed *jinja.Template
	err    error
}

// parse parses the template at the first call, and returns the same result at each.
func (t *templateText) parse() (*jinja.Template, error) {
	if t == nil {
		return nil, ErrNoChatTemplate
	}
	t.once.Do(func() {
		t.err = ErrNoChatTemplate
		if t.source != "" {
			t.parsed, t.err = jinja.Parse(t.source)
		}
	})
	return t.parsed, t.err
}
