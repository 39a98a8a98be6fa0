package proc

// census lists every process.
func census() ([]kin, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	list := make([]kin, 0, len(all))
	for _, p := range all {
		if f := look(p); f.state != 0 {
			list = append(list, kin{pid: p, parent: f.parent, session: f.session})
		}
	}
	return list, nil
}

// leads reports whether p leads its session, whose number nobody else has then.
func leads(p int) bool { return look(p).session == p }
