package cli

import (
	"fmt"
	"reflect"
	"strings"

	flags "github.com/jessevdk/go-flags"
)

// model is one tool as help, manual, completion and the rewriter see it: the
// public model of go-flags, flattened, with what go-flags does not keep.
type model struct {
	tool   *Tool
	parser *flags.Parser
	common common
	shared []*option // of common
	root   *verb
	verbs  []*verb
}

// common are the options that every tool has. They give way: a shortened option
// means one of them only if it means none of the tool's own.
type common struct {
	Help    bool   `long:"help" short:"h" description:"Print a summary of the options and leave."`
	Version bool   `long:"version" description:"Print the version and leave."`
	Man     bool   `long:"man" description:"Print the manual page (mdoc source) and leave."`
	Color   string `long:"color" value-name:"WHEN" default:"auto" choice:"auto" choice:"always" choice:"never" description:"Whether to mark text with colour; auto does so on a terminal."`
}

// verb is the tool itself or one of its commands.
type verb struct {
	name    string // empty for the tool itself
	decl    Command
	runner  Runner
	options []*option
	args    []argument
}

// option is an option with what go-flags keeps to itself.
type option struct {
	*flags.Option
	group    string // title, empty for the first group
	variable string // environment, empty when none
	delim    string // between the values of variable, for a repeatable option
	kind     reflect.Type
	many     bool // repeatable
	flag     bool // takes no value
}

// argument is a positional argument.
type argument struct {
	name, text string
	required   bool
	many       bool
	choices    []string
}

// newModel builds the model. A declaration that cannot work is a bug of the tool
// and panics, so that the first test of the tool finds it.
func newModel(tool *Tool, options Runner) *model {
	m := &model{tool: tool, parser: flags.NewNamedParser(tool.Name, flags.PassDoubleDash)}
	m.parser.SubcommandsOptional = true
	m.root = &verb{runner: options, decl: Command{
		Summary: tool.Summary, Description: tool.Description, Remainder: tool.Remainder,
		Prefixes: tool.Prefixes, Synopsis: tool.Synopsis,
	}}
	if options != nil {
		g, err := m.parser.Command.AddGroup("", "", options)
		must(tool, err)
		m.root.options = m.collect(g, nil)
		m.root.args = m.positionals(options)
	}
	g, err := m.parser.Command.AddGroup("Common options", "", &m.common)
	must(tool, err)
	m.shared = m.collect(g, nil)
	for _, c := range tool.Commands {
		if c.Options == nil {
			panic(fmt.Sprintf("command %s of %s has no Options", c.Name, tool.Name))
		}
		cmd, err := m.parser.AddCommand(c.Name, c.Summary, c.Description, c.Options)
		must(tool, err)
		m.verbs = append(m.verbs, &verb{name: c.Name, decl: c, runner: c.Options,
			options: m.collect(cmd.Group, nil), args: m.positionals(c.Options)})
	}
	return m
}

func must(tool *Tool, err error) {
	if err != nil {
		panic(fmt.Sprintf("options of %s: %v", tool.Name, err))
	}
}

// collect flattens a group and takes the environment away from go-flags: it reads
// the variables of the process, blank ones too, and names the option, not the
// variable, when a value is bad.
func (m *model) collect(g *flags.Group, all []*option) []*option {
	for _, o := range g.Options() {
		if o.LongName == "" {
			panic(fmt.Sprintf("options of %s: -%c has no long name", m.tool.Name, o.ShortName))
		}
		opt := &option{Option: o, group: g.ShortDescription, variable: o.EnvDefaultKey, delim: o.EnvDefaultDelim}
		o.EnvDefaultKey = ""
		opt.kind = o.Field().Type
		if opt.kind.Kind() == reflect.Pointer {
			opt.kind = opt.kind.Elem()
		}
		if opt.kind.Kind() == reflect.Slice {
			opt.kind, opt.many = opt.kind.Elem(), true
		}
		opt.flag = opt.kind.Kind() == reflect.Bool
		if choices := m.tool.Choices[o.LongName]; choices != nil {
			o.Choices = choices
		}
		all = append(all, opt)
	}
	for _, sub := range g.Groups() {
		all = m.collect(sub, all)
	}
	return all
}

// positionals reads the struct that carries the tag positional-args; go-flags
// does not say of its arguments which one takes all that remains.
func (m *model) positionals(options Runner) (args []argument) {
	v := reflect.TypeOf(options).Elem()
	for i := range v.NumField() {
		holder := v.Field(i)
		if holder.Tag.Get("positional-args") == "" {
			continue
		}
		for j := range holder.Type.NumField() {
			f := holder.Type.Field(j)
			a := argument{
				name: f.Tag.Get("positional-arg-name"),
				text: f.Tag.Get("description"),
				many: f.Type.Kind() == reflect.Slice,
			}
			if a.name == "" {
				a.name = strings.ToUpper(f.Name)
			}
			a.required = f.Tag.Get("required") != "" || (holder.Tag.Get("required") != "" && !a.many)
			a.choices = m.tool.Choices[a.name]
			args = append(args, a)
		}
	}
	return args
}

// find returns the verb of a name or an alias, nil when there is none.
func (m *model) find(name string) *verb {
	for _, v := range m.verbs {
		if v.name == name {
			return v
		}
		for _, alias := range v.decl.Aliases {
			if alias == name {
				return v
			}
		}
	}
	return nil
}

// visible returns the options that help shows.
func visible(options []*option) (shown []*option) {
	for _, o := range options {
		if !o.Hidden {
			shown = append(shown, o)
		}
	}
	return shown
}

// valueName is the word for an option's value.
func (o *option) valueName() string {
	switch {
	case o.flag:
		return ""
	case o.ValueName != "":
		return o.ValueName
	case o.kind == reflect.TypeFor[Seconds](), o.kind == reflect.TypeFor[Fraction]():
		return "SECONDS"
	case o.kind.Kind() >= reflect.Int && o.kind.Kind() <= reflect.Uint64:
		return "N"
	}
	return strings.ToUpper(o.LongName)
}

// defaultText is the default as it is shown, empty when there is none to show.
func (o *option) defaultText() string {
	if o.DefaultMask == "-" {
		return ""
	}
	if o.DefaultMask != "" {
		return o.DefaultMask
	}
	return strings.Join(o.Default, ", ")
}

// synopsis returns the synopsis of a verb without the tool's name.
func (m *model) synopsis(v *verb) []string {
	if len(v.decl.Synopsis) > 0 {
		return v.decl.Synopsis
	}
	var b strings.Builder
	if v.name != "" {
		b.WriteString(v.name + " ")
	}
	for _, o := range visible(v.options) {
		if o.Required {
			fmt.Fprintf(&b, "--%s %s ", o.LongName, o.valueName())
		}
	}
	b.WriteString("[options]")
	for _, a := range v.args {
		name := a.name
		if a.many {
			name += "..."
		}
		if !a.required {
			name = "[" + name + "]"
		}
		b.WriteString(" " + name)
	}
	if v.decl.Remainder != "" {
		b.WriteString(" [-- " + v.decl.Remainder + "]")
	}
	return []string{b.String()}
}
