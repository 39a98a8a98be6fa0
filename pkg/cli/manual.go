package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// manualDate is the date of every page: that of the last change of what pages
// look like or say. It is a constant because a page must not change with the day
// or the zone it was made in; `make man` and a comparison are the proof.
const manualDate = "November 29, 2026"

// writeManual prints the section 1 page of a tool as mdoc(7). go-flags' own
// writer leaves out choices, arguments and the variable of an option that has a
// default, dates the page by the local zone, and lets a line of text that begins
// with a dot vanish as an unknown macro.
func writeManual(out io.Writer, tool *Tool, options Runner) error {
	m := newModel(tool, options)
	p := &page{}
	p.macro("Dd", manualDate)
	p.macro("Dt", strings.ToUpper(tool.Name), "1")
	p.macro("Os")
	p.section("NAME")
	p.macro("Nm", tool.Name)
	p.macro("Nd", strings.TrimSuffix(tool.Summary, "."))
	p.section("SYNOPSIS")
	for _, s := range m.usage(m.root) {
		p.macro("Nm")
		p.line(s)
	}
	p.section("DESCRIPTION")
	description := tool.Description
	if description == "" {
		description = sentence(capital(tool.Summary))
	}
	p.text(description)
	p.arguments(m.root.args)
	if len(m.verbs) > 0 {
		p.section("COMMANDS")
		for _, v := range m.verbs {
			if !v.decl.Hidden {
				p.verb(m, v)
			}
		}
	}
	p.section("OPTIONS")
	p.text("A long option may be shortened to a prefix that fits no other, its value may be joined with an equals sign or be the next word, " +
		"and of an option that is given twice the last counts unless it may be repeated. The words after -- are no options.")
	p.options(append(visible(m.root.options), m.shared...))
	p.environment(m)
	if len(tool.Files) > 0 {
		p.section("FILES")
		p.macro("Bl", "-tag", "-width", "Ds")
		for _, f := range tool.Files {
			p.item("Pa", f.Path)
			p.text(sentence(capital(f.Text)))
		}
		p.macro("El")
	}
	p.exits(m)
	if len(tool.Examples) > 0 {
		p.section("EXAMPLES")
		for i, e := range tool.Examples {
			if i > 0 {
				p.macro("Pp")
			}
			p.text(e.Text)
			p.literal(strings.Split(e.Command, "\n"))
		}
	}
	for _, s := range tool.Sections {
		p.section(strings.ToUpper(s.Title))
		p.text(s.Text)
	}
	p.seeAlso(tool.SeeAlso)
	_, err := io.WriteString(out, p.b.String())
	return err
}

// page is a growing mdoc source.
type page struct{ b strings.Builder }

// macro writes a request whose arguments are ours, not free text.
func (p *page) macro(words ...string) { p.b.WriteString("." + strings.Join(words, " ") + "\n") }

func (p *page) section(title string) { p.macro("Sh", title) }

// item writes the head of a list entry around free text.
func (p *page) item(macro, text string) {
	p.b.WriteString(".It ")
	if macro != "" {
		p.b.WriteString(macro + " ")
	}
	p.b.WriteString(word(text) + "\n")
}

// word makes free text one argument of a macro: quoted, never itself a macro or
// a delimiter.
func word(text string) string {
	return `"\&` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"`
}

// roff escapes the one character that is special anywhere in a text.
func roff(text string) string { return strings.ReplaceAll(text, `\`, `\e`) }

// line writes one line of free text.
func (p *page) line(text string) {
	text = roff(text)
	// Options are copied from manuals into shells: a minus, not a hyphen.
	text = strings.ReplaceAll(" "+text, " -", ` \-`)
	text = strings.ReplaceAll(text, `\--`, `\-\-`)
	text = strings.ReplaceAll(text, `[--`, `[\-\-`)[1:]
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	p.b.WriteString(text + "\n")
}

// text writes paragraphs; one whose lines begin with a tab stands as it is.
func (p *page) text(text string) {
	first := true
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if strings.HasPrefix(paragraph, "\t") {
			var lines []string
			for l := range strings.SplitSeq(paragraph, "\n") {
				lines = append(lines, strings.TrimPrefix(l, "\t"))
			}
			p.literal(lines)
			first = false
			continue
		}
		if !first {
			p.macro("Pp")
		}
		first = false
		p.flow(paragraph)
	}
}

// flow fills lines; a sentence begins a new one, which is how mdoc sources are
// written and what lets the formatter set the space after it.
func (p *page) flow(text string) {
	var current []string
	flush := func() {
		for _, l := range wrap(strings.Join(current, " "), 74) {
			p.line(l)
		}
		current = nil
	}
	for w := range strings.FieldsSeq(text) {
		current = append(current, w)
		if end := strings.TrimRight(w, `)"'`); strings.HasSuffix(end, ".") || strings.HasSuffix(end, "?") || strings.HasSuffix(end, "!") {
			flush()
		}
	}
	flush()
}

func (p *page) literal(lines []string) {
	p.macro("Bd", "-literal", "-offset", "indent")
	for _, l := range lines {
		p.line(l)
	}
	p.macro("Ed")
}

func (p *page) verb(m *model, v *verb) {
	p.macro("Ss", word(v.name))
	for _, s := range m.synopsis(v) {
		p.literal([]string{m.tool.Name + " " + s})
	}
	p.macro("Pp")
	description := v.decl.Description
	if description == "" {
		description = sentence(capital(v.decl.Summary))
	}
	if len(v.decl.Aliases) > 0 {
		description += "\n\nAlso spelt " + alternatives(v.decl.Aliases) + "."
	}
	p.text(description)
	p.arguments(v.args)
	p.options(visible(v.options))
}

func (p *page) arguments(args []argument) {
	if !described(args) {
		return
	}
	p.macro("Bl", "-tag", "-width", "Ds")
	for _, a := range args {
		p.item("Ar", a.name)
		text := sentence(capital(a.text))
		if len(a.choices) > 0 {
			text += " One of " + alternatives(a.choices) + "."
		}
		p.flow(text)
	}
	p.macro("El")
}

func (p *page) options(options []*option) {
	if len(options) == 0 {
		return
	}
	p.macro("Bl", "-tag", "-width", "Ds")
	for _, o := range options {
		p.b.WriteString(".It ")
		if o.ShortName != 0 {
			p.b.WriteString("Fl " + string(o.ShortName) + " , ")
		}
		p.b.WriteString("Fl -" + o.LongName)
		switch {
		case o.flag:
		case o.OptionalArgument:
			p.b.WriteString(" Op Ar " + word(o.valueName()))
		default:
			p.b.WriteString(" Ar " + word(o.valueName()))
		}
		p.b.WriteString("\n")
		p.flow(o.sentences())
	}
	p.macro("El")
}

// environment lists the variables of the options and the others, each once.
func (p *page) environment(m *model) {
	var entries []EnvVar
	add := func(e EnvVar) {
		if !slices.ContainsFunc(entries, func(old EnvVar) bool { return old.Name == e.Name }) {
			entries = append(entries, e)
		}
	}
	for _, e := range m.tool.Environment {
		add(e)
	}
	for _, v := range append([]*verb{m.root}, m.verbs...) {
		for _, o := range v.options {
			if o.variable == "" {
				continue
			}
			text := "The value of --" + o.LongName + " where that option is not given."
			if v.name != "" {
				text = "The value of --" + o.LongName + " of " + v.name + " where that option is not given."
			}
			add(EnvVar{Name: o.variable, Default: o.defaultText(), Text: text})
		}
	}
	slices.SortStableFunc(entries, func(a, b EnvVar) int { return strings.Compare(a.Name, b.Name) })
	add(EnvVar{Name: "NO_COLOR", Text: "Not empty: no colour, unless --color=always is given."})
	p.section("ENVIRONMENT")
	p.text("A variable that is empty or holds blanks only counts as unset. A value that should be a number and is not gives a warning, and the default counts.")
	p.macro("Bl", "-tag", "-width", "Ds")
	for _, e := range entries {
		p.item("Ev", e.Name)
		text := sentence(capital(e.Text))
		if e.Default != "" {
			text += " Default: " + e.Default + "."
		}
		p.text(text)
	}
	p.macro("El")
}

func (p *page) exits(m *model) {
	all := Exits{
		statusUsage:  "The arguments are wrong; nothing was done.",
		statusOutput: "Standard output could not be written.",
		statusPipe:   "The reader of standard output left before the end.",
	}
	var other []string
	merge := func(name string, exits Exits, rest string) {
		for code, text := range exits {
			if name != "" {
				text = name + ": " + text
				if before, ok := all[code]; ok && code != statusUsage && code != statusOutput && code != statusPipe {
					text = sentence(before) + " " + text
				}
			}
			all[code] = text
		}
		if rest != "" {
			other = append(other, rest)
		}
	}
	merge("", m.tool.Exits, m.tool.ExitOther)
	for _, v := range m.verbs {
		if !v.decl.Hidden {
			merge(v.name, v.decl.Exits, v.decl.ExitOther)
		}
	}
	p.section("EXIT STATUS")
	p.macro("Bl", "-tag", "-width", "Ds")
	codes := make([]int, 0, len(all))
	for code := range all {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	for _, code := range codes {
		p.item("", strconv.Itoa(code))
		p.text(sentence(capital(all[code])))
	}
	if len(other) > 0 {
		p.item("", "other")
		p.text(sentence(capital(strings.Join(other, "; "))))
	}
	p.macro("El")
}

// seeAlso takes "name(section)" entries, in the order that mdoc wants: by section,
// then by name.
func (p *page) seeAlso(entries []string) {
	if len(entries) == 0 {
		return
	}
	type reference struct{ name, section string }
	var refs []reference
	for _, e := range entries {
		name, section, ok := strings.Cut(strings.TrimSuffix(e, ")"), "(")
		if !ok {
			panic(fmt.Sprintf("SeeAlso %q is not name(section)", e))
		}
		refs = append(refs, reference{name, section})
	}
	slices.SortFunc(refs, func(a, b reference) int {
		return strings.Compare(a.section+" "+a.name, b.section+" "+b.name)
	})
	p.section("SEE ALSO")
	for i, r := range refs {
		if i < len(refs)-1 {
			p.macro("Xr", r.name, r.section, ",")
		} else {
			p.macro("Xr", r.name, r.section)
		}
	}
}
