"""The connectome: a small stand-in with the files' quirks, and the files where they are."""

import os
from pathlib import Path

import numpy as np
import pytest

from permvi.datasets import celegans, registry

# Columns have blanks around their names, lines end as on Windows, and rows with a comma.
NEURONS = """Neuron,Soma Position,Soma Region, Span , Ambiguity
VD13,0.8,T,S,RDI
AVFL,0.2,H,S,
AVFR,0.2,H,L,
VA01,0.25,M,S,
"""
# Contacts are listed from both ends; one name is in lower case; muscles and neurons without a
# position are targets only; a count may be zero.
CONNECTIONS = """Neuron 1,Neuron 2,Type,Nbr,
AVFL,AVFR,S,1,
AVFL,AVFR,Sp,6,
avfr,avfl,R,1,
AVFR,AVFL,Rp,6,
AVFR,VA01,Sp,2,
VA01,AVFR,Rp,2,
AVFL,VA01,Sp,0,
VA01,VD13,EJ,3,
VD13,VA01,EJ,3,
VD13,VD13,EJ,2,
VA01,NMJ,NMJ,5,
VC06,NMJ,NMJ,1,
AVFL,VC06,S,4,
"""
LOWER_CASE = "avfl,avfr,S,9,\n"
TYPES = 'AVFL,AB x,"Interneuron, ring"\nAVFR,AB y,Interneuron\nVA1,P1.aaaa,Motor neuron\n'
OTHER_TYPES = "VD13,motor sensory\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write(tmp_path, "NeuronType.csv", NEURONS)
    write(tmp_path, "NeuronConnect.csv", CONNECTIONS)
    write(tmp_path, "NeuronTypeISM.csv", TYPES)
    write(tmp_path, "NeuronRemainingTypesISM.csv", OTHER_TYPES)
    monkeypatch.setenv(registry.FOLDER, str(tmp_path))
    return tmp_path


def write(folder, name, text):
    (folder / "celegans").mkdir(exist_ok=True)
    (folder / "celegans" / name).write_bytes(text.replace("\n", "\r\n").encode())


def test_the_stand_in(folder):
    found = celegans()
    assert found.names == ("AVFL", "AVFR", "VA01", "VD13")
    assert found.positions.tolist() == [0.2, 0.2, 0.25, 0.8]
    assert found.regions == ("H", "H", "M", "T")
    chemical, gap = np.zeros((2, 4, 4), int)
    chemical[0, 1], chemical[1, 2] = 7, 2
    gap[2, 3] = gap[3, 2] = 3
    gap[3, 3] = 2
    np.testing.assert_array_equal(found.chemical, chemical)
    np.testing.assert_array_equal(found.gap, gap)
    # Neither a count of zero nor a loop is an edge.
    edges = {tuple(pair) for pair in np.argwhere(np.triu(found.adjacency))}
    assert edges == {(0, 1), (1, 2), (2, 3)}
    np.testing.assert_array_equal(found.adjacency, found.adjacency.T)
    # Sensory, motor, interneuron; VA01 is VA1 there.
    assert found.types.astype(int).tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 1, 0]]
    assert repr(found) == "Connectome(4 neurons, 3 undirected edges)"


def test_the_papers_version_lacks_the_last_neuron(folder):
    found = celegans(paper=True)
    assert found.names == ("AVFL", "AVFR", "VA01")
    assert int(found.adjacency.sum()) == 2 * 2


def test_names_in_lower_case_count(folder):
    write(folder, "NeuronConnect.csv", CONNECTIONS + LOWER_CASE)
    assert celegans().chemical[0, 1] == 7 + 9


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("NeuronConnect.csv", CONNECTIONS + "VA01,VD13,EJ,x,\n", "must have rows 'from,to,type"),
        ("NeuronConnect.csv", CONNECTIONS + "AVFL,VD13,EJ,1,\n", "each gap junction from both"),
        ("NeuronType.csv", NEURONS + "AVFL,0.1,H,S,\n", "must name each neuron once"),
        ("NeuronType.csv", NEURONS + "ZZ,far,H,S,\n", "must hold numbers as positions"),
        ("NeuronType.csv", NEURONS.replace("Soma Region", "Where"), "a column 'Soma Region'"),
    ],
)
def test_files_that_do_not_add_up_are_refused(folder, name, text, message):
    write(folder, name, text)
    with pytest.raises(ValueError, match=message) as caught:
        celegans()
    assert "\n" not in str(caught.value)


def real_folder():
    beside = Path(__file__).parents[3] / "shared" / "data"
    return Path(os.environ.get(registry.FOLDER, beside))


@pytest.mark.skipif(
    not (real_folder() / "celegans").is_dir(), reason="the connectome is not on this machine"
)
class TestRealFiles:
    @pytest.fixture(autouse=True)
    def _folder(self, monkeypatch):
        monkeypatch.setenv(registry.FOLDER, str(real_folder()))

    def test_their_checksums(self):
        import pooch

        for name, entry in registry.FILES.items():
            if name.startswith("celegans/"):
                assert pooch.file_hash(real_folder() / name) == entry.sha256

    def test_neurons_and_edges(self):
        found = celegans()
        assert len(found) == 279
        assert int(found.adjacency.sum()) == 2 * 2287
        degrees = found.adjacency.sum(axis=0)
        assert (degrees.min(), degrees.max()) == (2, 93)
        assert np.count_nonzero(np.diag(found.gap)) == 3
        assert not np.diag(found.chemical).any()
        assert "VC06" not in found.names
        assert found.names[-1] == "VD13"

    def test_the_papers_version(self):
        found = celegans(paper=True)
        assert len(found) == 278
        assert int(found.adjacency.sum()) == 2 * 2276

    def test_contacts_are_listed_from_both_ends(self):
        """What is sent and what is received agree, so that one of them is enough."""
        names = celegans().names
        place = {name: index for index, name in enumerate(names)}
        received = np.zeros((279, 279), int)
        for line in (real_folder() / "celegans/NeuronConnect.csv").read_text().splitlines()[1:]:
            one, other, kind, number = line.upper().split(",")[:4]
            if kind in ("R", "RP") and one in place and other in place:
                received[place[other], place[one]] += int(number)
        np.testing.assert_array_equal(celegans().chemical, received)

    def test_positions_are_tied_multiples_of_a_hundredth(self):
        found = celegans()
        np.testing.assert_allclose(found.positions * 100, np.round(found.positions * 100))
        values, counts = np.unique(found.positions, return_counts=True)
        assert len(values) == 68
        assert counts[counts > 1].sum() == 251

    def test_types_against_the_tidy_table(self):
        path = real_folder() / "celegans" / "derived" / "neurons279.csv"
        if not path.is_file():
            pytest.skip("the tidy table is not on this machine")
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
        found = celegans()
        assert found.names == tuple(row[1] for row in rows)
        assert found.regions == tuple(row[3] for row in rows)
        np.testing.assert_array_equal(found.positions, [float(row[2]) for row in rows])
        np.testing.assert_array_equal(found.types, [[x == "1" for x in row[4:7]] for row in rows])

    def test_the_edges_of_an_independent_table_are_there(self):
        path = real_folder() / "celegans" / "white_1986_whole.csv"
        if not path.is_file():
            pytest.skip("the table of White et al. is not on this machine")
        found = celegans()
        place = {name: index for index, name in enumerate(found.names)}
        edges = set()
        for line in path.read_text().splitlines()[1:]:
            one, other = (cell.strip() for cell in line.split("\t")[:2])
            if one in place and other in place and one != other:
                edges.add((min(place[one], place[other]), max(place[one], place[other])))
        assert len(edges) > 1500
        # Two surveys of the same animals, decades apart.
        assert np.mean([found.adjacency[pair] for pair in edges]) > 0.99
