package cli

import (
	"io"
	"strings"

	"github.com/prun-suite/prun/pkg/line"
)

// helpWidth is fixed: the same text on every terminal and in every pipe.
const helpWidth = 79

// writeHelp prints the answer to --help: one Write, so that a closed pipe is one
// error.
func (m *model) writeHelp(out io.Writer, name string, v *verb) error {
	var b strings.Builder
	for i, s := range m.usage(v) {
		b.WriteString([]string{"Usage: ", "       "}[min(i, 1)] + name + " " + s + "\n")
	}
	b.WriteString("\n" + strings.Join(wrap(sentence(capital(v.decl.Summary)), helpWidth), "\n") + "\n")
	if v == m.root && len(m.verbs) > 0 {
		b.WriteString("\nCommands:\n")
		for _, c := range m.verbs {
			if !c.decl.Hidden {
				entry(&b, c.name, sentence(capital(c.decl.Summary)))
			}
		}
	}
	if described(v.args) {
		b.WriteString("\nArguments:\n")
		for _, a := range v.args {
			entry(&b, a.name, sentence(capital(a.text)))
		}
	}
	writeGroups(&b, visible(v.options), "Options")
	if v != m.root {
		writeGroups(&b, visible(m.root.options), "Options of every command")
	}
	writeGroups(&b, m.shared, "")
	_, err := io.WriteString(out, b.String())
	return err
}

// usage is the synopsis; a tool with verbs shows that it has some.
func (m *model) usage(v *verb) []string {
	if v == m.root && len(m.verbs) > 0 && len(v.decl.Synopsis) == 0 {
		return []string{"COMMAND [options] [arguments]"}
	}
	return m.synopsis(v)
}

func described(args []argument) bool {
	for _, a := range args {
		if a.text != "" {
			return true
		}
	}
	return false
}

// writeGroups prints options under the titles of their groups.
func writeGroups(b *strings.Builder, options []*option, title string) {
	last := "\x00"
	for _, o := range options {
		group := o.group
		if group == "" {
			group = title
		}
		if group != last {
			b.WriteString("\n" + group + ":\n")
			last = group
		}
		label := "    "
		if o.ShortName != 0 {
			label = "-" + string(o.ShortName) + ", "
		}
		label += "--" + o.LongName
		if !o.flag {
			if o.OptionalArgument {
				label += " [" + o.valueName() + "]"
			} else {
				label += " " + o.valueName()
			}
		}
		entry(b, label, o.sentences())
	}
}

// sentences is the description of an option with its choices, default and variable.
func (o *option) sentences() string {
	text := sentence(capital(o.Description))
	if o.many && !strings.Contains(o.Description, "repeat") {
		text += " May be repeated."
	}
	if len(o.Choices) > 0 {
		text += " One of " + alternatives(o.Choices) + "."
	}
	if def := o.defaultText(); def != "" {
		text += " Default: " + def + "."
	}
	if o.variable != "" {
		text += " Variable: " + o.variable + "."
	}
	return text
}

// sentence ends a text with a full stop if it has no end of its own.
func sentence(text string) string {
	if text == "" || strings.ContainsAny(text[len(text)-1:], ".!?:") {
		return text
	}
	return text + "."
}

// capital begins a sentence.
func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func entry(b *strings.Builder, label, text string) {
	const column = 30
	b.WriteString("  " + label)
	at := 2 + line.Width(label)
	for i, l := range wrap(text, helpWidth-column) {
		if i > 0 || at+2 > column {
			b.WriteString("\n")
			at = 0
		}
		b.WriteString(strings.Repeat(" ", column-at) + l)
		at = column
	}
	b.WriteString("\n")
}

// wrap breaks a text at blanks; a longer word stands alone.
func wrap(text string, width int) (lines []string) {
	current := ""
	for word := range strings.FieldsSeq(text) {
		if current != "" && line.Width(current)+1+line.Width(word) > width {
			lines = append(lines, current)
			current = ""
		}
		if current != "" {
			current += " "
		}
		current += word
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}
