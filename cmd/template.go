package cmd

import (
	"strconv"

	"github.com/spf13/cobra"

	"onering/tokenize"
)

// addTemplate adds the flags that say what prompt to make of a problem: --template,
// whose default is name, --system, --template-args and, if asked for, --stop.
func addTemplate(c *cobra.Command, s *tokenize.TemplateSettings, name string, stop bool) {
	s.Template = name
	flags := []string{"template", "system", "template-args"}
	if stop {
		flags = append(flags, "stop")
	}
	addSettings(c.Flags(), s, flags...)
	must(c.RegisterFlagCompletionFunc("template", completeTemplates))
}

// addChat adds --chat, which is short for --template chat.
func addChat(c *cobra.Command, s *tokenize.TemplateSettings) {
	c.Flags().BoolFunc("chat", "the same as --template chat: the chat template of the model's tokenizer", func(text string) error {
		on, err := strconv.ParseBool(text)
		if on {
			s.Template = "chat"
		}
		return err
	})
	exclusive(c, "chat", "template")
}

// parseTemplate returns the template that the flags describe.
func parseTemplate(s tokenize.TemplateSettings) (tokenize.Template, error) {
	t, err := s.PromptTemplate()
	return t, namingFlags(err, &s)
}

func completeTemplates(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return tokenize.Templates(), cobra.ShellCompDirectiveNoFileComp
}
