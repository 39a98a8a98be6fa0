package cli

import (
	"fmt"
	"io"
	"strings"
)

// writeCompletion prints the completion file of a shell. The files are complete
// in themselves: completing a word starts no process of ours. (go-flags' own way
// is a variable that makes any of its programs print its options; it is never
// set here, and removed from what our children see.)
func writeCompletion(out io.Writer, tool *Tool, options Runner, args []string) error {
	write := map[string]func(*model) string{"bash": bash, "zsh": zsh, "fish": fish}
	if len(args) != 1 || write[args[0]] == nil {
		return Usage("__completion takes bash, zsh or fish")
	}
	_, err := io.WriteString(out, write[args[0]](newModel(tool, options)))
	return err
}

// completable returns what help shows of a verb, with the options of the tool.
func (m *model) completable(v *verb) []*option {
	options := visible(v.options)
	if v != m.root {
		options = append(options, visible(m.root.options)...)
	}
	return append(options, m.shared...)
}

func (m *model) shown() (verbs []*verb) {
	for _, v := range m.verbs {
		if !v.decl.Hidden {
			verbs = append(verbs, v)
		}
	}
	return verbs
}

func (v *verb) names() []string { return append([]string{v.name}, v.decl.Aliases...) }

func spellings(o *option) []string {
	if o.ShortName != 0 {
		return []string{"-" + string(o.ShortName), "--" + o.LongName}
	}
	return []string{"--" + o.LongName}
}

// short is the first sentence of a description, for the list that a shell shows.
func short(text string) string {
	text, _, _ = strings.Cut(text, ". ")
	return strings.TrimSuffix(text, ".")
}

func identifier(name string) string { return "_" + strings.ReplaceAll(name, "-", "_") }

func bash(m *model) string {
	var b strings.Builder
	name := identifier(m.tool.Name)
	fmt.Fprintf(&b, "# bash completion for %s\n%s() {\n", m.tool.Name, name)
	b.WriteString("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= i words=\n" +
		"\tCOMPREPLY=()\n" +
		"\t# bash cuts --option=value at the equals sign\n" +
		"\tif [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n")
	verbs := m.shown()
	if len(verbs) > 0 {
		b.WriteString("\tfor ((i = 1; i < COMP_CWORD; i++)); do\n\t\tcase ${COMP_WORDS[i]} in\n")
		for _, v := range verbs {
			fmt.Fprintf(&b, "\t\t%s) verb=%s; break ;;\n", strings.Join(v.names(), "|"), v.name)
		}
		b.WriteString("\t\t--) break ;;\n\t\tesac\n\tdone\n")
	}
	b.WriteString("\tcase $verb,$prev in\n")
	for _, v := range append([]*verb{m.root}, verbs...) {
		for _, o := range m.completable(v) {
			if o.flag || o.OptionalArgument {
				continue
			}
			for _, s := range spellings(o) {
				// Without choices the reply stays empty, and -o default offers files.
				fmt.Fprintf(&b, "\t%s,%s) COMPREPLY=($(compgen -W %s -- \"$cur\")); return ;;\n", v.name, s, shell(strings.Join(o.Choices, " ")))
			}
		}
	}
	b.WriteString("\tesac\n\tcase $verb,$cur in\n")
	for _, v := range append([]*verb{m.root}, verbs...) {
		var options []string
		for _, o := range m.completable(v) {
			options = append(options, "--"+o.LongName)
		}
		fmt.Fprintf(&b, "\t%s,-*) words=%s ;;\n", v.name, shell(strings.Join(options, " ")))
		if words := m.firstWords(v); len(words) > 0 {
			fmt.Fprintf(&b, "\t%s,*) words=%s ;;\n", v.name, shell(strings.Join(words, " ")))
		}
	}
	fmt.Fprintf(&b, "\tesac\n\t[[ -z $words ]] || COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F %s %s\n", name, m.tool.Name)
	return b.String()
}

// firstWords are the words that a verb knows for its arguments: the verbs, or the
// choices of its first argument.
func (m *model) firstWords(v *verb) (words []string) {
	if v == m.root {
		for _, c := range m.shown() {
			words = append(words, c.name)
		}
	}
	if len(words) == 0 && len(v.args) > 0 {
		words = v.args[0].choices
	}
	return words
}

func zsh(m *model) string {
	var b strings.Builder
	name := identifier(m.tool.Name)
	fmt.Fprintf(&b, "#compdef %s\n%s() {\n", m.tool.Name, name)
	verbs := m.shown()
	if len(verbs) == 0 {
		b.WriteString("\t_arguments -s -S" + m.zshArguments(m.root) + "\n")
	} else {
		b.WriteString("\tlocal curcontext=$curcontext state line\n\ttypeset -A opt_args\n\tlocal -a verbs\n\tverbs=(\n")
		for _, v := range verbs {
			fmt.Fprintf(&b, "\t\t%s\n", shell(v.name+":"+strings.ReplaceAll(v.decl.Summary, ":", `\:`)))
		}
		b.WriteString("\t)\n\t_arguments -C -s -S" + m.zshOptions(m.root) +
			" \\\n\t\t'1:command:->command' \\\n\t\t'*::argument:->rest'\n" +
			"\tcase $state in\n\tcommand) _describe command verbs ;;\n\trest)\n\t\tcase $words[1] in\n")
		for _, v := range verbs {
			fmt.Fprintf(&b, "\t\t%s) _arguments -s -S%s ;;\n", strings.Join(v.names(), "|"), m.zshArguments(v))
		}
		b.WriteString("\t\tesac ;;\n\tesac\n")
	}
	// Works as an autoloaded function and when the file is sourced.
	fmt.Fprintf(&b, "}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n\t%s \"$@\"\nelse\n\tcompdef %s %s\nfi\n", name, name, m.tool.Name)
	return b.String()
}

func (m *model) zshOptions(v *verb) string {
	var b strings.Builder
	for _, o := range m.completable(v) {
		text := "[" + strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(short(o.Description)) + "]"
		if !o.flag {
			text += ":" + o.valueName() + ":"
			if o.OptionalArgument {
				text = strings.Replace(text, "]:", "]::", 1)
			}
			if len(o.Choices) > 0 {
				text += "(" + strings.Join(o.Choices, " ") + ")"
			} else {
				text += "_files"
			}
		}
		for _, s := range spellings(o) {
			if !o.flag && strings.HasPrefix(s, "--") {
				s += "="
			}
			if o.many {
				s = "*" + s
			}
			b.WriteString(" \\\n\t\t" + shell(s+text))
		}
	}
	return b.String()
}

func (m *model) zshArguments(v *verb) string {
	b := m.zshOptions(v)
	for i, a := range v.args {
		where := fmt.Sprint(i + 1)
		if a.many {
			where = "*"
		}
		action := "_files"
		if len(a.choices) > 0 {
			action = "(" + strings.Join(a.choices, " ") + ")"
		}
		b += " \\\n\t\t" + shell(where+":"+a.name+":"+action)
	}
	return b
}

func fish(m *model) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %s\n", m.tool.Name)
	verbs := m.shown()
	var all []string
	for _, v := range verbs {
		all = append(all, v.names()...)
	}
	for _, v := range append([]*verb{m.root}, verbs...) {
		head := "complete -c " + m.tool.Name
		switch {
		case v != m.root:
			head += " -n " + shell("__fish_seen_subcommand_from "+strings.Join(v.names(), " "))
		case len(verbs) > 0:
			head += " -n " + shell("not __fish_seen_subcommand_from "+strings.Join(all, " "))
		}
		for _, o := range m.completable(v) {
			fmt.Fprintf(&b, "%s -l %s", head, o.LongName)
			if o.ShortName != 0 {
				b.WriteString(" -s " + string(o.ShortName))
			}
			switch {
			case len(o.Choices) > 0:
				b.WriteString(" -x -a " + fishQuote(strings.Join(o.Choices, " ")))
			case !o.flag && !o.OptionalArgument:
				b.WriteString(" -r")
			}
			fmt.Fprintf(&b, " -d %s\n", fishQuote(short(o.Description)))
		}
		if v == m.root {
			for _, c := range verbs {
				fmt.Fprintf(&b, "%s -f -a %s -d %s\n", head, c.name, fishQuote(c.decl.Summary))
			}
		} else if words := m.firstWords(v); len(words) > 0 {
			fmt.Fprintf(&b, "%s -a %s\n", head, fishQuote(strings.Join(words, " ")))
		}
	}
	return b.String()
}

// shell quotes a word for bash and zsh.
func shell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// fishQuote quotes a word for fish, where a backslash is special between quotes.
func fishQuote(word string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(word) + "'"
}
