package cmd

import (
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

// parseTemplate returns the template that the flags describe.
func parseTemplate(s tokenize.TemplateSettings) (tokenize.Template, error) {
	t, err := s.PromptTemplate()
	return t, namingFlags(err, &s)
}

func completeTemplates(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return tokenize.Templates(), cobra.ShellCompDirectiveNoFileComp
}
